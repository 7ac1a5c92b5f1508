// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses the activations whose buffers are cut in panels.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Slices.h"
#include "bsr/Analysis/Windows.h"
#include "bsr/Codegen/Common/KernelTarget.h"
#include "bsr/Codegen/Common/Passes.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRPANEL
#include "bsr/Codegen/Common/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// True if `op`, a view, has whole panels of `panel` lanes where its source has
/// them.
static bool keepsPanels(Operation *op, int64_t panel) {
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return slice.getStaticOffsets().back() % panel == 0;
  // The last of the dimensions that are merged or cut.
  auto expand = dyn_cast<tensor::ExpandShapeOp>(op);
  auto collapse = dyn_cast<tensor::CollapseShapeOp>(op);
  auto groups = expand ? expand.getReassociationIndices()
                       : collapse.getReassociationIndices();
  ArrayRef<int64_t> shape = expand ? expand.getResultType().getShape()
                                   : collapse.getSrcType().getShape();
  SmallVector<int64_t> extents;
  for (int64_t dim : groups.back())
    if (shape[dim] != 1)
      extents.push_back(shape[dim]);
  return extents.size() < 2 || extents.back() % panel == 0;
}

/// True if what a cluster reads of `value` begins and ends with its panels of
/// `panel` lanes: vectors would lie across others. A product whose windows are
/// summed up reads tokens at the offset of each place.
static bool isReadInPanels(Value value, int64_t panel) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (isView(user))
      return keepsPanels(user, panel) &&
             isReadInPanels(user->getResult(0), panel);
    return !areSummedUp(user);
  });
}

/// True if `op` sums up tokens of one feature after the other: of each panel it
/// would read one row.
static bool sumsAlongLanes(linalg::GenericOp op) {
  RootAttr root = attrs::root.get(op);
  if (op.getNumReductionLoops() == 0 || op.getNumDpsInputs() != 1 ||
      (root && root.getIsTotal()))
    return false;
  AffineMap map = op.getIndexingMapsArray().front();
  if (map.getNumResults() < 3)
    return false;
  auto lane = dyn_cast<AffineDimExpr>(map.getResults().back());
  return lane && op.getIteratorTypesArray()[lane.getPosition()] ==
                     utils::IteratorType::reduction;
}

/// True if `cluster` goes through a feature's tokens once to sum them up, and
/// again with what it makes of the sums.
static bool goesAlongLanes(ClusterOp cluster) {
  auto ops = cluster.getBody().front().getOps<linalg::GenericOp>();
  return llvm::any_of(ops, sumsAlongLanes) &&
         llvm::any_of(ops, [](linalg::GenericOp op) {
           return op.getNumReductionLoops() == 0 && op.getNumLoops() >= 3;
         });
}

/// True if `use` is that of a kernel which takes panels of `panel` lanes.
static bool takesPanels(OpOperand &use, int64_t panel, SymbolTable &symbols) {
  auto launch = dyn_cast<LaunchOp>(use.getOwner());
  auto cluster =
      launch ? symbols.lookup<ClusterOp>(launch.getKernel()) : ClusterOp();
  unsigned number = use.getOperandNumber();
  return launch && (!cluster || number >= launch.getInputs().size() ||
                    (isReadInPanels(cluster.getArgument(number), panel) &&
                     !goesAlongLanes(cluster)));
}

/// True if `result`, which `cluster` returns as `computed`, is an activation
/// that panels of `panel` lanes divide, and that kernels alone see.
static bool isCut(Value result, Value computed, int64_t panel,
                  SymbolTable &symbols) {
  Operation *root = computed.getDefiningOp();
  auto type = cast<RankedTensorType>(result.getType());
  auto isDivided = [&](Type type) {
    return cast<RankedTensorType>(type).getShape().back() % panel == 0;
  };
  if (auto concat = dyn_cast_or_null<tensor::ConcatOp>(root))
    if (!llvm::all_of(concat.getInputs().getTypes(), isDivided))
      return false;
  return root && attrs::lanes.isOn(root) && type.getRank() >= 2 &&
         isDivided(type) && type.getShape().back() > panel &&
         llvm::all_of(result.getUses(), [&](OpOperand &use) {
           return takesPanels(use, panel, symbols);
         });
}

namespace {
struct Panel : bsr::impl::BSRPanelBase<Panel> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    KernelTargetAttrInterface target = getKernelTarget(module);
    int64_t panel = target.getPanel();
    if (!panel)
      return;
    DenseSet<Value> cut;
    SmallVector<LaunchOp> launches;
    module.walk([&](LaunchOp launch) {
      auto cluster = symbols.lookup<ClusterOp>(launch.getKernel());
      if (!cluster)
        return;
      launches.push_back(launch);
      for (auto [result, computed] :
           llvm::zip_equal(launch.getResults(), cluster.getYielded())) {
        if (!isCut(result, computed, panel, symbols) ||
            !decide("bsr-panel", launch))
          continue;
        cut.insert(result);
        ++numPanels;
      }
    });
    for (LaunchOp launch : launches) {
      SmallVector<int64_t> operands;
      for (auto [number, input] : llvm::enumerate(launch.getInputs()))
        if (cut.contains(input))
          operands.push_back(number);
      for (auto [number, result] : llvm::enumerate(launch.getResults()))
        if (cut.contains(result))
          operands.push_back(launch.getInputs().size() + number);
      if (!operands.empty())
        attrs::panels.set(launch,
                          Builder(launch).getDenseI64ArrayAttr(operands));
    }
  }
};
} // namespace

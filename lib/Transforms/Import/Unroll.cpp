// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Unrolls loops of a known number of steps, but for those that add rows by
// index.

#include "bsr/Analysis/ElementWise.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Import/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRUNROLL
#include "bsr/Transforms/Import/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The number of operations that `loop` becomes, or none if its trip count is
/// not known.
static std::optional<uint64_t> getUnrolledSize(scf::ForOp loop) {
  std::optional<APInt> trips = loop.getStaticTripCount();
  if (!trips)
    return std::nullopt;
  uint64_t size = 0;
  loop.getBody()->walk([&](linalg::LinalgOp) { ++size; });
  return llvm::SaturatingMultiply(trips->getLimitedValue(), size);
}

/// Whether `value` is a function of `source`, by operations within `loop`.
static bool dependsOn(Value value, Value source, scf::ForOp loop) {
  SmallVector<Value> worklist = {value};
  DenseSet<Value> seen;
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    if (next == source)
      return true;
    Operation *op = next.getDefiningOp();
    if (op && loop->isProperAncestor(op) && seen.insert(next).second)
      llvm::append_range(worklist, op->getOperands());
  }
  return false;
}

/// Whether `loop` counts the matrices of a stacked weight.
static bool countsMatrices(scf::ForOp loop) {
  WalkResult result = loop.getBody()->walk([&](tensor::ExtractSliceOp slice) {
    auto stack = dyn_cast<BlockArgument>(slice.getSource());
    auto func = stack ? dyn_cast<func::FuncOp>(stack.getOwner()->getParentOp())
                      : func::FuncOp();
    auto mark =
        func ? attrs::mark.ofArg(func, stack.getArgNumber()) : MarkAttr();
    if (!mark || !mark.getNumDims(MarkDim::Stack) || !slice.isDynamicOffset(0))
      return WalkResult::advance();
    Value index = slice.getDynamicOffset(0);
    return WalkResult(
        failure(llvm::any_of(loop.getBody()->getArguments(), [&](Value value) {
          return dependsOn(index, value, loop);
        })));
  });
  return result.wasInterrupted();
}

/// The entry of `tensor`, of rank 0, by operations on scalars.
static Value createEntry(OpBuilder &b, Value tensor) {
  Location loc = tensor.getLoc();
  if (auto elements = tensor.getDefiningOp<tensor::FromElementsOp>())
    return elements.getElements()[0];
  auto op = tensor.getDefiningOp<linalg::LinalgOp>();
  if (!op || !op.hasPureTensorSemantics() || op.getNumLoops() != 0)
    return tensor::ExtractOp::create(b, loc, tensor, ValueRange());
  IRMapping mapping;
  for (OpOperand &operand : op->getOpOperands())
    if (BlockArgument entry = op.getMatchingBlockArgument(&operand);
        !entry.use_empty())
      mapping.map(entry, isa<RankedTensorType>(operand.get().getType())
                             ? createEntry(b, operand.get())
                             : operand.get());
  for (Operation &inner : op.getBlock()->without_terminator())
    b.clone(inner, mapping);
  return mapping.lookupOrDefault(op.getBlock()->getTerminator()->getOperand(
      cast<OpResult>(tensor).getResultNumber()));
}

/// True if `slice` is all of one row of a tensor of static shape, the one at
/// `row`.
static bool isRow(OffsetSizeAndStrideOpInterface slice, RankedTensorType type,
                  Value row) {
  SmallVector<int64_t> offsets(type.getRank(), 0), sizes(type.getShape());
  if (!type.hasStaticShape() || offsets.empty())
    return false;
  offsets[0] = ShapedType::kDynamic;
  sizes[0] = 1;
  return slice.getStaticOffsets() == ArrayRef(offsets) &&
         slice.getStaticSizes() == ArrayRef(sizes) &&
         llvm::all_equal(slice.getStaticStrides()) &&
         slice.getStaticStrides().front() == 1 &&
         slice.getDynamicOffset(0) == row;
}

/// True if `sum` is `a + b`, entry by entry.
static bool isSum(Value sum, Value a, Value b) {
  auto op = sum.getDefiningOp<linalg::LinalgOp>();
  if (!op || !op.hasPureTensorSemantics() || op->getNumResults() != 1 ||
      op.getNumLoops() != op.getNumParallelLoops() ||
      !llvm::all_of(op.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isIdentity(); }))
    return false;
  auto add = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  if (!isa_and_nonnull<arith::AddFOp>(add) ||
      !llvm::hasSingleElement(op.getBlock()->without_terminator()))
    return false;
  SmallVector<Value> terms;
  for (Value operand : add->getOperands())
    if (auto entry = dyn_cast<BlockArgument>(operand))
      terms.push_back(op->getOperand(entry.getArgNumber()));
  return terms == SmallVector<Value>{a, b} || terms == SmallVector<Value>{b, a};
}

/// The tensor of which `index` is the entry of step `step`: one a step, in the
/// order of the steps; null if it is something else.
static Value getIndices(Value index, Value step) {
  auto cast = index.getDefiningOp<arith::IndexCastOp>();
  auto entry = cast ? cast.getIn().getDefiningOp<tensor::ExtractOp>()
                    : tensor::ExtractOp();
  if (!entry || entry.getIndices().empty() ||
      entry.getIndices().front() != step ||
      !llvm::all_of(entry.getIndices().drop_front(),
                    [](Value zero) { return matchPattern(zero, m_Zero()); }))
    return {};
  auto type = entry.getTensor().getType();
  if (!type.hasStaticShape() || type.getNumElements() != type.getDimSize(0) ||
      !(type.getElementType().isInteger(32) ||
        type.getElementType().isInteger(64)))
    return {};
  return entry.getTensor();
}

/// `tensor` with its dimensions behind the first `kept` in one, the last.
static Value mergeDims(OpBuilder &b, Value tensor, int64_t kept) {
  auto type = cast<RankedTensorType>(tensor.getType());
  if (type.getRank() == kept + 1)
    return tensor;
  SmallVector<ReassociationIndices> groups(kept + 1);
  for (int64_t dim : llvm::seq(type.getRank()))
    groups[std::min(dim, kept)].push_back(dim);
  return tensor::CollapseShapeOp::create(b, tensor.getLoc(), tensor, groups);
}

/// for i: rows[indices[i]] += updates[i] -> scatter_add(indices, updates)
///
/// where the rows are zeros before. The sums have the same order. Returns
/// false if `loop` does something else.
static bool raiseScatterAdd(scf::ForOp loop) {
  std::optional<APInt> trips = loop.getStaticTripCount();
  if (!trips || loop.getNumRegionIterArgs() != 1 ||
      !matchPattern(loop.getLowerBound(), m_Zero()) ||
      !matchPattern(loop.getStep(), m_One()) ||
      !isZeros(loop.getInitArgs().front()))
    return false;
  Value step = loop.getInductionVar(), rows = loop.getRegionIterArg(0);
  auto insert = loop.getBody()
                    ->getTerminator()
                    ->getOperand(0)
                    .getDefiningOp<tensor::InsertSliceOp>();
  if (!insert || insert.getDest() != rows || !rows.hasNUses(2) ||
      insert.getMixedOffsets().empty())
    return false;
  tensor::ExtractSliceOp before;
  for (Operation *user : rows.getUsers())
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user))
      before = slice;
  auto sum = insert.getSource().getDefiningOp<linalg::LinalgOp>();
  RankedTensorType type = insert.getType();
  if (!before || !sum || type.getRank() != 2 || !before.isDynamicOffset(0))
    return false;
  Value index = before.getDynamicOffset(0);
  if (!isRow(before, type, index) || !isRow(insert, type, index))
    return false;
  tensor::ExtractSliceOp update;
  for (Value operand : sum->getOperands())
    if (auto slice = operand.getDefiningOp<tensor::ExtractSliceOp>();
        slice && slice != before)
      update = slice;
  if (!update || !isRow(update, update.getSourceType(), step) ||
      !isSum(insert.getSource(), before, update))
    return false;
  Value indices = getIndices(index, step), updates = update.getSource();
  auto isHere = [&](Value value) {
    return loop->isAncestor(value.getParentRegion()->getParentOp());
  };
  if (!indices || isHere(indices) || isHere(updates) ||
      update.getSourceType().getDimSize(0) != trips->getSExtValue() ||
      cast<RankedTensorType>(indices.getType()).getDimSize(0) !=
          trips->getSExtValue())
    return false;
  OpBuilder b(loop);
  Value sums =
      ScatterAddOp::create(b, loop.getLoc(), type, mergeDims(b, indices, 0),
                           mergeDims(b, updates, 1), /*featureDim=*/1);
  loop.getResult(0).replaceAllUsesWith(sums);
  loop.erase();
  return true;
}

namespace {
struct Unroll : bsr::impl::BSRUnrollBase<Unroll> {
  using Base::Base;

  LogicalResult initialize(MLIRContext *context) override {
    if (maxOperations > 0)
      return success();
    return emitError(UnknownLoc::get(context),
                     "expected max-operations to be 1 or greater, but got ")
           << maxOperations.getValue();
  }

  void runOnOperation() override {
    // A walk in post-order: inner loops first, so their operations count.
    getOperation()->walk([&](scf::ForOp loop) {
      if (raiseScatterAdd(loop)) {
        ++numScatterAdds;
        return;
      }
      std::optional<uint64_t> size = getUnrolledSize(loop);
      if (!size || (*size > maxOperations && !countsMatrices(loop)) ||
          failed(loopUnrollFull(loop)))
        return;
      ++numUnrolled;
    });
    getOperation()->walk([](tensor::ExtractOp extract) {
      if (extract.getIndices().empty() && extract.getType().isIntOrIndex()) {
        OpBuilder b(extract);
        extract.replaceAllUsesWith(createEntry(b, extract.getTensor()));
        extract.erase();
      }
    });
  }
};
} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns each cluster into a kernel, a function on buffers whose body the target
// emits.

#include "PlanKernels.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Windows.h"
#include "bsr/Codegen/Common/KernelTarget.h"
#include "bsr/Codegen/Common/Passes.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREMIT
#include "bsr/Codegen/Common/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The part of `whole`, the buffer of a tensor of rank `rank`, that `piece`
/// is, from `position` on along dimension `dim`: as a buffer of what the
/// producer of the piece makes, in panels if `whole` is.
static Value createView(OpBuilder &b, Location loc, Value whole, int64_t rank,
                        int64_t dim, int64_t position, Value piece) {
  auto type = cast<MemRefType>(whole.getType());
  SmallVector<int64_t> strides = type.getStridesAndOffset().first;
  int64_t panel = 0, panelStride = 0;
  if (type.getRank() != rank) {
    panel = type.getShape().back();
    panelStride = strides[rank - 2];
    strides.erase(strides.begin() + rank - 2);
  }
  int64_t offset = panel && dim == rank - 1 ? position / panel * panelStride
                                            : position * strides[dim];
  while (auto collapse = piece.getDefiningOp<tensor::CollapseShapeOp>()) {
    ArrayRef<int64_t> shape = collapse.getSrcType().getShape();
    SmallVector<int64_t> split(shape.size());
    for (auto [group, stride] :
         llvm::zip_equal(collapse.getReassociationIndices(), strides)) {
      int64_t next = stride;
      for (int64_t member : llvm::reverse(group)) {
        split[member] = next;
        next *= shape[member];
      }
    }
    strides = split;
    piece = collapse.getSrc();
  }
  SmallVector<int64_t> sizes(
      cast<RankedTensorType>(piece.getType()).getShape());
  if (panel) {
    sizes.insert(sizes.end() - 2, sizes.back() / panel);
    sizes.back() = panel;
    strides.insert(strides.end() - 2, panelStride);
  }
  auto layout = StridedLayoutAttr::get(b.getContext(), offset, strides);
  return memref::ReinterpretCastOp::create(
      b, loc, MemRefType::get(sizes, type.getElementType(), layout), whole,
      offset, sizes, strides);
}

namespace {
/// The plan of a pattern that a kernel follows: the kernel that makes it, and
/// the number of the pattern among the arguments of the cluster.
struct FollowedPlan {
  PlanKernel maker;
  unsigned pattern;
};

/// A cluster as a function on buffers: inputs, then plans, then outputs, then
/// scratch memory.
struct Kernel {
  func::FuncOp function;
  /// Per argument of the cluster, the pattern views that the body walks.
  SmallVector<SmallVector<View, 2>> walked;
  /// The inputs in whose buffers results may lie.
  SmallVector<int64_t> inPlace;
  SmallVector<FollowedPlan> plans;
  SmallVector<MemRefType> scratch;
};
} // namespace

/// The type of `kernel`, and what its launches must know: `panels` lists the
/// inputs and outputs of `cluster` that are cut in panels.
static FunctionType getSignature(ClusterOp cluster, ArrayRef<int64_t> panels,
                                 KernelTargetAttrInterface target,
                                 KernelTargetAttrInterface emitter,
                                 Kernel &kernel) {
  SmallVector<Type> types;
  int64_t operand = 0;
  auto addTensor = [&](Type type) {
    auto tensor = cast<RankedTensorType>(type);
    if (llvm::is_contained(panels, operand++))
      tensor = target.getPanelType(tensor);
    types.push_back(getDenseBufferType(tensor));
  };
  for (BlockArgument argument : cluster.getBody().getArguments()) {
    kernel.walked.emplace_back();
    if (isa<RankedTensorType>(argument.getType())) {
      addTensor(argument.getType());
      continue;
    }
    ++operand;
    auto pattern = dyn_cast<PatternType>(argument.getType());
    if (!pattern) {
      types.push_back(argument.getType());
      continue;
    }
    // A pattern becomes the index arrays of the views in use.
    for (View view : views) {
      if (llvm::none_of(argument.getUsers(), [&](Operation *user) {
            return emitter.getWalkedView(user) == view;
          }))
        continue;
      kernel.walked.back().push_back(view);
      for (Type type : pattern.getIndexTypes(view))
        types.push_back(getDenseBufferType(type));
    }
  }
  for (const FollowedPlan &plan : kernel.plans)
    llvm::append_range(types, plan.maker.types);
  for (Type type : cluster.getResultTypes())
    addTensor(type);
  llvm::append_range(types, kernel.scratch);
  return FunctionType::get(cluster.getContext(), types, {});
}

/// Emits `cluster`, as `emitter` does and between the buffers of `target`, as a
/// function that takes its place, and what makes the plans that it follows.
static FailureOr<Kernel> emit(ClusterOp cluster, const ClusterPlan &plan,
                              KernelTargetAttrInterface target,
                              KernelTargetAttrInterface emitter,
                              ArrayRef<int64_t> panels,
                              PlanKernels &planKernels) {
  OpBuilder builder(cluster);
  Location loc = cluster.getLoc();
  Block &block = cluster.getBody().front();
  Kernel kernel;
  SmallVector<PatternPlan> plans = emitter.getPatternPlans(plan);
  for (const PatternPlan &followed : plans)
    kernel.plans.push_back(
        {planKernels.getKernel(followed, cluster.getName()),
         cast<BlockArgument>(followed.pattern).getArgNumber()});
  kernel.scratch = emitter.getScratch(plan);
  kernel.inPlace = emitter.getInPlace(cluster, plan);
  kernel.function = func::FuncOp::create(
      builder, loc, cluster.getName(),
      getSignature(cluster, panels, target, emitter, kernel));
  kernel.function.setPrivate();
  kernel.function->setDiscardableAttrs(cluster->getDiscardableAttrDictionary());
  Block *entry = kernel.function.addEntryBlock();
  builder.setInsertionPointToStart(entry);

  KernelBody body(loc, plan, /*isCut=*/!panels.empty());
  unsigned next = 0;
  for (auto [argument, used] :
       llvm::zip_equal(block.getArguments(), kernel.walked)) {
    if (!isa<PatternType>(argument.getType())) {
      body.inputs[argument] = entry->getArgument(next++);
      continue;
    }
    for (View view : used) {
      body.patterns[{argument, view}] = {entry->getArgument(next),
                                         entry->getArgument(next + 1),
                                         entry->getArgument(next + 2)};
      next += 3;
    }
  }
  for (const PatternPlan &followed : plans) {
    body.plans[followed.op] =
        entry->getArguments().slice(next, followed.types.size());
    next += followed.types.size();
  }
  for (Value result : cluster.getYielded())
    body.outputs[result] = entry->getArgument(next++);
  for (auto concat : block.getOps<tensor::ConcatOp>()) {
    if (areReadInLine(concat))
      continue;
    int64_t position = 0, dim = concat.getDim();
    for (Value piece : concat.getInputs()) {
      body.outputs[getPieceProducer(piece).getResult(0)] =
          createView(builder, loc, body.outputs.lookup(concat.getResult()),
                     concat.getRank(), dim, position, piece);
      position += cast<RankedTensorType>(piece.getType()).getDimSize(dim);
    }
  }
  body.scratch = entry->getArguments().drop_front(next);
  LogicalResult emitted = emitter.emitBody(builder, body);
  builder.setInsertionPointToEnd(entry);
  func::ReturnOp::create(builder, loc);
  if (failed(emitted))
    return failure();
  return kernel;
}

/// The operands of `launch` that `bsr-panel` chose to cut in panels.
static SmallVector<int64_t> getPanels(LaunchOp launch) {
  auto panels = attrs::panels.get(launch);
  return panels ? SmallVector<int64_t>(panels.asArrayRef())
                : SmallVector<int64_t>();
}

/// Gives `launch` the operands of the emitted kernel: index arrays for
/// patterns, plans of patterns, results in panels, and results that are scratch
/// memory.
static void updateLaunch(LaunchOp launch, const Kernel &kernel,
                         KernelTargetAttrInterface target,
                         PlanKernels &planKernels) {
  OpBuilder b(launch);
  launch.setKernelAttr(FlatSymbolRefAttr::get(kernel.function));
  SmallVector<int64_t> panels = getPanels(launch);
  for (auto [number, result, init] :
       llvm::enumerate(launch.getResults(), launch.getInitsMutable())) {
    if (!llvm::is_contained(
            panels, static_cast<int64_t>(launch.getInputs().size() + number)))
      continue;
    RankedTensorType type =
        target.getPanelType(cast<RankedTensorType>(result.getType()));
    result.setType(type);
    init.set(tensor::EmptyOp::create(b, launch.getLoc(), type.getShape(),
                                     type.getElementType()));
  }
  attrs::panels.remove(launch);
  SmallVector<Value> inputs;
  SmallVector<int64_t> inPlace;
  for (auto [number, input, used] :
       llvm::enumerate(launch.getInputs(), kernel.walked)) {
    if (!isa<PatternType>(input.getType())) {
      if (llvm::is_contained(kernel.inPlace, static_cast<int64_t>(number)))
        inPlace.push_back(inputs.size());
      inputs.push_back(input);
      continue;
    }
    for (View view : used)
      llvm::append_range(
          inputs,
          IndicesOp::create(b, launch.getLoc(), input, view).getResults());
  }
  for (const FollowedPlan &plan : kernel.plans)
    llvm::append_range(
        inputs,
        planKernels.getArrays(plan.maker, launch.getInputs()[plan.pattern]));
  // A result that is not read is memory for the kernel alone: were its init the
  // same value as another's, bufferization would let both lie in one place.
  SmallVector<Value> inits;
  auto addScratch = [&](ShapedType type) {
    inits.push_back(bufferization::AllocTensorOp::create(
        b, launch.getLoc(),
        RankedTensorType::get(type.getShape(), type.getElementType()),
        /*dynamicSizes=*/ValueRange()));
  };
  for (auto [init, result] :
       llvm::zip_equal(launch.getInits(), launch.getResults())) {
    if (result.use_empty())
      addScratch(cast<ShapedType>(result.getType()));
    else
      inits.push_back(init);
  }
  for (MemRefType type : kernel.scratch)
    addScratch(type);
  auto updated = LaunchOp::create(
      b, launch.getLoc(), TypeRange(ValueRange(inits)), launch.getKernelAttr(),
      inputs, inits, b.getDenseI64ArrayAttr(inPlace));
  updated->setDiscardableAttrs(launch->getDiscardableAttrDictionary());
  launch->replaceAllUsesWith(
      updated.getResults().take_front(launch->getNumResults()));
  launch.erase();
}

namespace {
struct Emit : bsr::impl::BSREmitBase<Emit> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    // A cluster becomes a kernel for each way its buffers are cut.
    std::map<SmallVector<int64_t>, SmallVector<LaunchOp>> none;
    llvm::MapVector<StringRef, decltype(none)> launches;
    module.walk([&](LaunchOp launch) {
      launches[launch.getKernel()][getPanels(launch)].push_back(launch);
    });
    SymbolTable symbols(module);
    PlanKernels planKernels(symbols);
    KernelTargetAttrInterface target = getKernelTarget(module);
    auto plain =
        cast<KernelTargetAttrInterface>(ScalarAttr::get(&getContext()));
    for (auto &[name, ways] : launches) {
      auto cluster = symbols.lookup<ClusterOp>(name);
      if (!cluster)
        continue;
      auto plan = ClusterPlan::get(cluster, getTarget(module), emitReport);
      if (!plan)
        return signalPassFailure();
      // Buffers lie as the target has them either way.
      // Plain loops would need what is summed up in memory.
      KernelTargetAttrInterface emitter =
          llvm::any_of(plan->roots,
                       [](Operation *root) {
                         return SummedWindows::get(root).has_value();
                       }) ||
                  decide("bsr-emit", cluster)
              ? target
              : plain;
      SmallVector<func::FuncOp> kernels;
      for (auto &[panels, calls] : ways) {
        FailureOr<Kernel> kernel =
            emit(cluster, *plan, target, emitter, panels, planKernels);
        if (failed(kernel))
          return signalPassFailure();
        kernels.push_back(kernel->function);
        if (kernels.size() > 1)
          symbols.insert(kernel->function);
        for (LaunchOp launch : calls)
          updateLaunch(launch, *kernel, target, planKernels);
        ++numKernels;
      }
      symbols.remove(cluster);
      cluster.erase();
      symbols.insert(kernels.front());
    }
  }
};
} // namespace

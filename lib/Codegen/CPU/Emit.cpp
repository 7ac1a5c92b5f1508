// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns each cluster into a kernel, a function on buffers: one level of
// parallel loops over vectors.

#include "ChainNests.h"
#include "bsr/Analysis/ClusterPlan.h"
#include "bsr/Codegen/CPU/Emitter.h"
#include "bsr/Codegen/CPU/Kernels.h"
#include "bsr/Codegen/CPU/Passes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREMIT
#include "bsr/Codegen/CPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The tensor `type`, as it is or in panels: what lies in its buffer.
static RankedTensorType getStoredType(Type type, bool isCut, int64_t panel) {
  auto tensor = cast<RankedTensorType>(type);
  return isCut ? getPanelType(tensor, panel) : tensor;
}

/// Makes every piece of `concat` the result of an operation that can write it
/// where it belongs: a copy where there is none.
static void addProducers(tensor::ConcatOp concat) {
  OpBuilder b(concat);
  Location loc = concat.getLoc();
  for (OpOperand &piece : concat->getOpOperands()) {
    if (getPieceProducer(piece.get()))
      continue;
    auto type = cast<RankedTensorType>(piece.get().getType());
    AffineMap map = b.getMultiDimIdentityMap(type.getRank());
    SmallVector<utils::IteratorType> kinds(type.getRank(),
                                           utils::IteratorType::parallel);
    Value init =
        tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
    auto copy = linalg::GenericOp::create(
        b, loc, type, piece.get(), init, ArrayRef{map, map}, kinds,
        [](OpBuilder &nested, Location loc, ValueRange args) {
          linalg::YieldOp::create(nested, loc, args.front());
        });
    piece.set(copy.getResult(0));
  }
}

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

/// Emits the body of `cluster` into a function on buffers that takes its place:
/// inputs, then outputs, then scratch memory; `panels` lists the inputs and
/// outputs that are cut in panels. Returns, per input, the pattern views that
/// the body walks, the inputs that are only read where the same element is
/// written, and the types of the scratch buffers.
static FailureOr<func::FuncOp> emit(ClusterOp cluster, const ClusterPlan &plan,
                                    CPUTarget target, ArrayRef<int64_t> panels,
                                    SmallVector<SmallVector<View, 2>> &walked,
                                    SmallVector<int64_t> &inPlace,
                                    SmallVector<MemRefType> &scratch) {
  OpBuilder builder(cluster);
  Location loc = cluster.getLoc();
  Block &body = cluster.getBody().front();

  ArrayRef<SmallVector<Operation *>> nests = plan.nests;
  const std::optional<Chain> &chain = plan.chain;
  if (chain)
    scratch = getScratch(*chain, target);

  // The signature: a pattern becomes the index arrays of the views in use.
  SmallVector<Type> types;
  int64_t operand = 0;
  auto getBufferType = [&](Type type) {
    return getDenseBufferType(getStoredType(
        type, llvm::is_contained(panels, operand), target.panel()));
  };
  for (BlockArgument argument : body.getArguments()) {
    operand = argument.getArgNumber();
    walked.emplace_back();
    if (auto pattern = dyn_cast<PatternType>(argument.getType())) {
      for (View view : views) {
        if (llvm::none_of(argument.getUsers(), [&](Operation *user) {
              return getWalkedView(user) == view;
            }))
          continue;
        walked.back().push_back(view);
        for (Type type : pattern.getIndexTypes(view))
          types.push_back(getDenseBufferType(type));
      }
    } else if (isa<RankedTensorType>(argument.getType())) {
      types.push_back(getBufferType(argument.getType()));
    } else {
      types.push_back(argument.getType());
    }
  }
  operand = body.getNumArguments();
  for (Type type : cluster.getResultTypes()) {
    types.push_back(getBufferType(type));
    ++operand;
  }
  llvm::append_range(types, scratch);

  auto kernel = func::FuncOp::create(builder, loc, cluster.getName(),
                                     builder.getFunctionType(types, {}));
  kernel.setPrivate();
  kernel->setDiscardableAttrs(cluster->getDiscardableAttrDictionary());
  Block *entry = kernel.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  Emitter emitter(builder, loc, target);
  emitter.hasStack = true;
  emitter.panel = panels.empty() ? 0 : target.panel();
  PatternViews patterns;
  unsigned next = 0;
  for (auto [argument, used] : llvm::zip_equal(body.getArguments(), walked)) {
    if (isa<PatternType>(argument.getType())) {
      for (View view : used) {
        patterns[{argument, view}] = {entry->getArgument(next),
                                      entry->getArgument(next + 1),
                                      entry->getArgument(next + 2)};
        next += 3;
      }
    } else {
      emitter.setBuffer(argument, entry->getArgument(next++));
    }
  }
  DenseMap<Value, Value> outputs;
  for (Value result : cluster.getYielded())
    outputs[result] = entry->getArgument(next++);
  for (auto concat : body.getOps<tensor::ConcatOp>()) {
    int64_t position = 0, dim = concat.getDim();
    for (Value piece : concat.getInputs()) {
      outputs[getPieceProducer(piece).getResult(0)] =
          createView(builder, loc, outputs.lookup(concat.getResult()),
                     concat.getRank(), dim, position, piece);
      position += cast<RankedTensorType>(piece.getType()).getDimSize(dim);
    }
  }
  for (auto [value, place] : plan.places)
    outputs[value] = outputs.lookup(place);
  if (chain)
    emitChain(emitter, *chain, outputs, patterns,
              entry->getArguments().drop_front(next));
  for (ArrayRef<Operation *> nest : nests) {
    emitNest(emitter, nest, outputs, patterns);
    for (Operation *root : nest)
      for (Value result : root->getResults())
        if (Value buffer = outputs.lookup(result))
          emitter.setBuffer(result, buffer);
  }
  builder.setInsertionPointToEnd(entry);
  func::ReturnOp::create(builder, loc);
  if (emitter.hasFailed)
    return failure();

  bool isOneNest = nests.size() == 1 && !plan.hasConcatenation &&
                   isOnePointwiseNest(nests[0][0], nests[0][0]);
  for (BlockArgument argument : body.getArguments()) {
    Value buffer = emitter.getBuffer(argument);
    if (!buffer || !isa<MemRefType>(buffer.getType()))
      continue;
    if (chain ? chain->isReadFirst(
                    argument,
                    [&](Value value) { return outputs.contains(value); })
              : isOneNest && !emitter.readElsewhere.contains(buffer))
      inPlace.push_back(argument.getArgNumber());
  }
  return kernel;
}

/// The operands of `launch` that `bsr-panel` chose to cut in panels.
static SmallVector<int64_t> getPanels(LaunchOp launch) {
  auto panels = launch->getAttrOfType<DenseI64ArrayAttr>("bsr.panels");
  return panels ? SmallVector<int64_t>(panels.asArrayRef())
                : SmallVector<int64_t>();
}

/// Gives `launch` the operands of the emitted kernel: index arrays for
/// patterns, results in panels, and results that are scratch memory.
static void updateLaunch(LaunchOp launch, FlatSymbolRefAttr kernel,
                         CPUTarget target,
                         ArrayRef<SmallVector<View, 2>> walked,
                         ArrayRef<int64_t> inPlace,
                         ArrayRef<MemRefType> scratch) {
  OpBuilder b(launch);
  launch.setKernelAttr(kernel);
  SmallVector<int64_t> panels = getPanels(launch);
  for (auto [number, result, init] :
       llvm::enumerate(launch.getResults(), launch.getInitsMutable())) {
    if (!llvm::is_contained(
            panels, static_cast<int64_t>(launch.getInputs().size() + number)))
      continue;
    RankedTensorType type =
        getStoredType(result.getType(), /*isCut=*/true, target.panel());
    result.setType(type);
    init.set(tensor::EmptyOp::create(b, launch.getLoc(), type.getShape(),
                                     type.getElementType()));
  }
  launch->removeAttr("bsr.panels");
  SmallVector<Value> inputs;
  SmallVector<int64_t> lockstep;
  for (auto [number, input, used] :
       llvm::enumerate(launch.getInputs(), walked)) {
    if (!isa<PatternType>(input.getType())) {
      if (llvm::is_contained(inPlace, static_cast<int64_t>(number)))
        lockstep.push_back(inputs.size());
      inputs.push_back(input);
      continue;
    }
    for (View view : used)
      llvm::append_range(
          inputs,
          IndicesOp::create(b, launch.getLoc(), input, view).getResults());
  }
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
  for (MemRefType type : scratch)
    addScratch(type);
  auto updated = LaunchOp::create(
      b, launch.getLoc(), TypeRange(ValueRange(inits)), launch.getKernelAttr(),
      inputs, inits, b.getDenseI64ArrayAttr(lockstep));
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
    CPUTarget target = getCPUTarget(module);
    for (auto &[name, ways] : launches) {
      auto cluster = symbols.lookup<ClusterOp>(name);
      if (!cluster)
        continue;
      for (auto concat : cluster.getBody().front().getOps<tensor::ConcatOp>())
        if (canCompute(concat))
          addProducers(concat);
      auto plan = ClusterPlan::get(cluster, getTarget(module));
      if (failed(plan))
        return signalPassFailure();
      SmallVector<func::FuncOp> kernels;
      for (auto &[panels, calls] : ways) {
        SmallVector<SmallVector<View, 2>> walked;
        SmallVector<int64_t> inPlace;
        SmallVector<MemRefType> scratch;
        FailureOr<func::FuncOp> kernel =
            emit(cluster, *plan, target, panels, walked, inPlace, scratch);
        if (failed(kernel))
          return signalPassFailure();
        kernels.push_back(*kernel);
        if (kernels.size() > 1)
          symbols.insert(*kernel);
        for (LaunchOp launch : calls)
          updateLaunch(launch, FlatSymbolRefAttr::get(*kernel), target, walked,
                       inPlace, scratch);
        ++numKernels;
      }
      symbols.remove(cluster);
      cluster.erase();
      symbols.insert(kernels.front());
    }
  }
};
} // namespace

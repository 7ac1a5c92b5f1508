// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel of bsr.spmm, whatever multiplies and copies: a thread block owns
// lines of output features, and tokens, and goes through the plan of its group
// of lines. What it copies and multiplies on the way is its mainloop's
// (SpMMMainloop); what sums begin with, and their epilogue, is here.

#include "SpMMKernel.h"
#include "SplitK.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::optional<PatternPlan> SpMMKernel::getPlan() {
  auto emit = [plan = plan](OpBuilder &b, Location loc, const PatternView &view,
                            ValueRange arrays) {
    plan.emit(b, loc, view, arrays);
    if (plan.numSlices)
      SplitK(plan, arrays).emit(b, loc);
  };
  return PatternPlan{op, op.getPattern(), *op.getLineView(),
                     plan.getTypes(op->getContext()), emit};
}

SmallVector<MemRefType> SpMMKernel::getScratch() {
  SmallVector<MemRefType> types;
  if (plan.numSlices)
    types.push_back(slices.getType(op->getContext()));
  if (epilogue)
    llvm::append_range(types, epilogue->getScratch());
  return types;
}

bool SpMMKernel::setShape(const BlockProduct &operands, bool isOnTensorCores) {
  auto found = SpMMShape::get(operands, isOnTensorCores);
  if (!found)
    return false;
  op = cast<SpMMOp>(operands.op);
  shape = *found;
  return true;
}

std::optional<ResultSpace> SpMMKernel::getSpace() {
  if (!shape.isOnTensorCores)
    return std::nullopt;
  int64_t rank = op.getY().getType().getRank();
  SmallVector<int64_t, 2> batches = llvm::to_vector<2>(llvm::seq(rank - 2));
  return {{{batches, {rank - 2}, {rank - 1}}, /*row=*/1, grid.warpTokens}};
}

Value SpMMKernel::loadStart(BlockBuilder &b, const KernelBody &kernel,
                            const ChunkRange &range, Value output) {
  Type f32 = b.b.getF32Type();
  Value bias = op.getBias();
  Value zero = arith::ConstantOp::create(b.b, b.loc, b.b.getZeroAttr(f32));
  if (!bias)
    return zero;
  Type type = cast<ShapedType>(bias.getType()).getElementType();
  Value pointer = b.getPointer(kernel.inputs.lookup(bias));
  Value last = b.constant(shape.numLines * shape.outBlock - 1);
  Value start =
      b.loadFloats(b.at(pointer, b.min(output, last), type), type, 1).front();
  return range.isSlice ? b.select(range.isSlice, zero, start) : start;
}

SpMMLaunch SpMMKernel::begin(OpBuilder &b, KernelBody &kernel,
                             ValueRange scratch) {
  const Activations &x = shape.activations;
  SpMMLaunch launch{
      kernel, SmallVector<Value>(kernel.plans.at(op)), {}, {}, {}};
  llvm::append_range(launch.memory, scratch);
  if (epilogue)
    epilogue->begin(b, kernel, scratch.drop_front(plan.numSlices ? 1 : 0));
  else
    launch.y = createRows(b, kernel.loc, kernel.outputs.lookup(op.getY()),
                          {x.batches, shape.numLines * shape.outBlock},
                          x.tokens, grid.storedLength);
  if (!grid.areBoxes)
    return launch;
  launch.x = ActivationBoxes::create(b, kernel, op.getX(), x,
                                     {shape.inBlock, StageLayout::boxTokens});
  // Thread blocks that share blocks copy some of the rows of each.
  launch.valuesMap = createTensorMap(
      b, kernel.loc, kernel.inputs.lookup(op.getValues()), shape.blockCols,
      {shape.blockRows / grid.cluster[1], shape.blockCols});
  return launch;
}

void SpMMKernel::finish(BlockBuilder &b, const ChunkRange &range,
                        ValueRange memory, Value rank, ValueRange sums,
                        llvm::function_ref<void(ValueRange)> finish) {
  Value own = plan.numSlices ? memory[plan.getNumArrays()] : Value();
  if (range.numSlices)
    return finish(slices.add(b, own, range, rank, sums));
  if (!range.isSlice)
    return finish(sums);
  b.when(range.isSlice, [&] { slices.store(b, own, range.slice, rank, sums); });
  Value isWhole = b.less(range.whole, b.constant(plan.getNumGroups()));
  b.when(isWhole, [&] { finish(sums); });
}

void SpMMKernel::launch(
    OpBuilder &b, const SpMMLaunch &launch,
    llvm::function_ref<void(BlockBuilder &, const ChunkRange &)> body) {
  int64_t groups = plan.getNumGroups();
  Location loc = launch.kernel.loc;
  ValueRange memory = launch.memory;
  auto emit = [&](BlockBuilder &block, std::pair<ChunkRange, Value> item) {
    auto [range, isThere] = item;
    if (!isThere)
      return body(block, range);
    block.when(isThere, [&, &range = range] { body(block, range); });
  };
  BlockBuilder::launch(
      b, loc, {(groups + plan.numSlices) * grid.cluster[0], slices.tiles},
      grid.threads, grid.sharedBytes,
      [&](BlockBuilder &block) {
        Value number = block.div(block.block[0], grid.cluster[0]);
        emit(block, plan.getItem(block, number, memory));
      },
      grid.cluster);
  // What copies has no sums.
  if (plan.numSlices)
    BlockBuilder::launch(
        b, loc, {groups * grid.cluster[0], slices.tiles}, slices.threads,
        /*sharedBytes=*/0, [&](BlockBuilder &block) {
          Value number = block.div(block.block[0], grid.cluster[0]);
          emit(block, plan.getSum(block, number, memory));
        });
}

namespace mlir::bsr::gpu {
/// What a thread does, whose `mainloop` says what is copied and multiplied.
class SpMMEmitter {
public:
  SpMMEmitter(SpMMKernel &kernel, SpMMMainloop &mainloop, BlockBuilder &b)
      : kernel(kernel), shape(kernel.shape), mainloop(mainloop),
        launch(mainloop.product.launch), range(mainloop.product.range), b(b),
        multiplier(mainloop.createMultiplier()) {}
  void emit();

private:
  /// The output of row `row` of the lane in an accumulator.
  Value getOutput(int64_t accumulator, int64_t row);
  SmallVector<Value> getInitialSums();
  /// The sums of an accumulator, row by row.
  SmallVector<Value> getRows(int64_t accumulator, ValueRange sums);
  void finish(ValueRange sums);
  void finishWhole(ValueRange sums);
  void store(ValueRange sums);
  /// Of neighbouring accumulators.
  void emitEpilogue(int64_t first, int64_t count, ValueRange sums);

  SpMMKernel &kernel;
  const SpMMShape &shape;
  SpMMMainloop &mainloop;
  const SpMMLaunch &launch;
  const ChunkRange &range;
  BlockBuilder &b;
  std::unique_ptr<Multiplier> multiplier;
};
} // namespace mlir::bsr::gpu

Value SpMMEmitter::getOutput(int64_t accumulator, int64_t row) {
  const SumLayout &layout = multiplier->layout;
  return b.add(mainloop.getOutput(accumulator, layout.getFirstRow(b)),
               layout.getRow(row));
}

SmallVector<Value> SpMMEmitter::getInitialSums() {
  SmallVector<Value> sums;
  for (int64_t i = 0; i != mainloop.numAccumulators; ++i) {
    SmallVector<Value> starts;
    for (int64_t row = 0; row != multiplier->numRows; ++row)
      starts.push_back(
          kernel.loadStart(b, launch.kernel, range, getOutput(i, row)));
    llvm::append_range(sums, multiplier->fillRows(starts));
  }
  return sums;
}

SmallVector<Value> SpMMEmitter::getRows(int64_t accumulator, ValueRange sums) {
  int64_t count = multiplier->numSums;
  return multiplier->getRows(sums.slice(accumulator * count, count));
}

void SpMMEmitter::store(ValueRange sums) {
  Value outputs = b.constant(shape.numLines * shape.outBlock);
  auto whenInside = [&](Value output, llvm::function_ref<void()> body) {
    if (shape.numLines % kernel.plan.lines == 0)
      body();
    else
      b.when(b.less(output, outputs), body);
  };
  // An accumulator of neighbours is a line, which is inside or not.
  int64_t all = multiplier->numRows;
  int64_t together = mainloop.areNeighbours ? all : 1;
  for (int64_t i = 0; i != mainloop.numAccumulators; ++i)
    for (int64_t first = 0; first != all; first += together)
      whenInside(getOutput(i, first), [&] {
        SmallVector<Value> rows = getRows(i, sums);
        int64_t perRow = int64_t(rows.size()) / all;
        for (int64_t row = first; row != first + together; ++row)
          storeRow(b, multiplier->layout,
                   ValueRange(rows).slice(row * perRow, perRow), launch.y,
                   {mainloop.batch, getOutput(i, row)}, mainloop.firstToken,
                   mainloop.areTokensRagged);
      });
}

void SpMMEmitter::emitEpilogue(int64_t first, int64_t count, ValueRange sums) {
  WarpSums warp;
  warp.layout = multiplier->layout;
  for (int64_t i = first; i != first + count; ++i)
    llvm::append_range(warp.sums, getRows(i, sums));
  warp.numRows = count * multiplier->numRows;
  warp.at = {mainloop.batch, getOutput(first, /*row=*/0)};
  warp.column = mainloop.firstToken;
  warp.warpNumber = b.div(warp.column, kernel.grid.warpTokens);
  warp.areRowsRagged = shape.numLines % kernel.plan.lines;
  warp.areColumnsRagged = mainloop.areTokensRagged;
  kernel.epilogue->emit(b, warp);
}

void SpMMEmitter::finishWhole(ValueRange sums) {
  auto finishAll = [&] {
    if (!kernel.epilogue)
      return store(sums);
    int64_t all = mainloop.numAccumulators,
            count = mainloop.areNeighbours ? all : 1;
    for (int64_t first = 0; first != all; first += count)
      emitEpilogue(first, count, sums);
  };
  if (!mainloop.areBatchesRagged)
    return finishAll();
  b.when(b.less(mainloop.batch, b.constant(shape.activations.batches)),
         finishAll);
}

void SpMMEmitter::finish(ValueRange sums) {
  kernel.finish(b, range, launch.memory, mainloop.rank,
                multiplier->unpack(sums),
                [&](ValueRange sums) { finishWhole(sums); });
}

void SpMMEmitter::emit() {
  auto finishSums = [&](ValueRange sums) { finish(sums); };
  if (range.numSlices)
    return finish(getInitialSums());
  mainloop.run(
      *multiplier, [&] { return getInitialSums(); }, finishSums);
}

LogicalResult SpMMKernel::emit(OpBuilder &b, KernelBody &kernel,
                               ValueRange scratch) {
  SpMMLaunch launched = begin(b, kernel, scratch);
  launch(b, launched, [&](BlockBuilder &block, const ChunkRange &range) {
    auto mainloop = createMainloop({op, shape, plan, launched, range}, block);
    SpMMEmitter(*this, *mainloop, block).emit();
  });
  return epilogue ? epilogue->end(b) : success();
}

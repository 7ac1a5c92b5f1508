// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What products have alike whose thread blocks follow the plan of a
// pattern.

#include "PlannedSpMM.h"
#include "bsr/Codegen/GPU/Core/Reshapes.h"
#include "bsr/Codegen/GPU/Core/Warpgroups.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <numeric>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

int64_t PartSums::getLength() const { return std::gcd(sums, int64_t(4)); }

MemRefType PartSums::getType(MLIRContext *context) const {
  int64_t length = getLength();
  return MemRefType::get({parts * share, tiles, sums / length, threads, length},
                         Float32Type::get(context));
}

void PartSums::store(BlockBuilder &b, Value memory, Value part, Value rank,
                     ValueRange values) const {
  int64_t length = getLength();
  for (int64_t first = 0; first != sums; first += length) {
    Value vector = vector::FromElementsOp::create(
        b.b, b.loc, VectorType::get(length, b.b.getF32Type()),
        values.slice(first, length));
    b.store(vector, memory,
            {b.multiplyAdd(part, share, rank), b.block[1],
             b.constant(first / length), b.thread, b.constant(0)});
  }
}

SmallVector<Value> PartSums::add(BlockBuilder &b, Value memory,
                                 const ChunkRange &range, Value rank,
                                 ValueRange values) const {
  Type f32 = b.b.getF32Type();
  int64_t length = getLength();
  Value tile =
      b.multiplyAdd(b.block[1], sums * threads, b.mul(b.thread, length));
  Value pointer = b.at(b.getPointer(memory), tile, f32);
  Value end = b.add(range.firstPart, range.numParts);
  return b.loop(
      range.firstPart, end, 1, values, [&](Value part, ValueRange carried) {
        Value from = b.atFar(pointer, b.multiplyAdd(part, share, rank),
                             tiles * sums * threads, f32);
        SmallVector<Value> next;
        for (int64_t first = 0; first != sums; first += length) {
          SmallVector<Value> others =
              b.loadFloats(b.at(from, first * threads, f32), f32, length);
          for (auto [sum, other] :
               llvm::zip_equal(carried.slice(first, length), others))
            next.push_back(arith::AddFOp::create(b.b, b.loc, sum, other));
        }
        return next;
      });
}

std::optional<PatternPlan> PlannedSpMM::getPlan() {
  auto emit = [plan = plan](OpBuilder &b, Location loc, const PatternView &view,
                            ValueRange arrays) {
    plan.emit(b, loc, view, arrays);
  };
  return PatternPlan{op, op.getPattern(), *op.getLineView(),
                     plan.getTypes(op->getContext()), emit};
}

SmallVector<MemRefType> PlannedSpMM::getScratch() {
  SmallVector<MemRefType> types;
  if (plan.numParts)
    types.push_back(parts.getType(op->getContext()));
  if (epilogue)
    llvm::append_range(types, epilogue->getScratch());
  return types;
}

bool PlannedSpMM::setShape(const BlockProduct &operands, bool isOnTensorCores) {
  auto found = SpMMShape::get(operands, isOnTensorCores);
  if (!found)
    return false;
  op = cast<SpMMOp>(operands.op);
  shape = *found;
  return true;
}

bool PlannedSpMM::chooseTile(SpMMTile &tile, GPUAttr target) {
  int64_t shareOutputs = shape.isOnTensorCores
                             ? std::min(target.getShareOutputs(), mostShares)
                             : 0;
  const Chip &chip = *findChip(target.getChip());
  auto best = SpMMTile::choose(shape, chip, target.getTileOutputs(),
                               target.getTileTokens(), shareOutputs);
  if (!best)
    return false;
  tile = *best;
  plan = tile.getCutPlan(shape, chip, isTileGiven(target));
  parts = {plan.numParts, tile.getShares(), tile.getTokenTiles(shape),
           blockThreads, tile.getSums(shape)};
  return true;
}

ResultSpace PlannedSpMM::getRows(int64_t warpTokens) {
  int64_t rank = op.getY().getType().getRank();
  SmallVector<int64_t, 2> batches = llvm::to_vector<2>(llvm::seq(rank - 2));
  return {{batches, {rank - 2}, {rank - 1}}, /*row=*/1, warpTokens};
}

Value PlannedSpMM::loadStart(BlockBuilder &b, const KernelBody &kernel,
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
  return range.isPart ? b.select(range.isPart, zero, start) : start;
}

SpMMLaunch PlannedSpMM::begin(OpBuilder &b, KernelBody &kernel,
                              ValueRange scratch, int64_t length) {
  const Activations &x = shape.activations;
  SpMMLaunch launch{
      kernel, SmallVector<Value>(kernel.plans.at(op)), {}, {}, {}};
  llvm::append_range(launch.memory, scratch);
  if (epilogue)
    epilogue->begin(b, kernel, scratch.drop_front(plan.numParts ? 1 : 0));
  else
    launch.y = createRows(b, kernel.loc, kernel.outputs.lookup(op.getY()),
                          {x.batches, shape.numLines * shape.outBlock},
                          x.tokens, length);
  return launch;
}

void PlannedSpMM::createMaps(OpBuilder &b, SpMMLaunch &launch,
                             int64_t shareTokens) {
  const KernelBody &kernel = launch.kernel;
  launch.xMap = createTensorMap(
      b, kernel.loc, kernel.inputs.lookup(skipReshapes(op.getX())),
      shape.activations.tokens, {shape.inBlock, StageLayout::boxTokens});
  launch.valuesMap = createTensorMap(
      b, kernel.loc, kernel.inputs.lookup(op.getValues()), shape.blockCols,
      {shape.blockRows / shareTokens, shape.blockCols});
}

void PlannedSpMM::finish(BlockBuilder &b, const ChunkRange &range,
                         ValueRange memory, Value rank, ValueRange sums,
                         llvm::function_ref<void(ValueRange)> finish) {
  Value own = plan.numParts ? memory[plan.getNumArrays()] : Value();
  if (range.numParts)
    return finish(parts.add(b, own, range, rank, sums));
  if (!range.isPart)
    return finish(sums);
  b.when(range.isPart, [&] { parts.store(b, own, range.part, rank, sums); });
  Value isWhole = b.less(range.whole, b.constant(plan.getNumGroups()));
  b.when(isWhole, [&] { finish(sums); });
}

void PlannedSpMM::launch(
    OpBuilder &b, const SpMMLaunch &launch, int64_t threads,
    int64_t sharedBytes,
    llvm::function_ref<void(BlockBuilder &, const ChunkRange &)> body,
    std::array<int64_t, 2> cluster) {
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
      b, loc, {(groups + plan.numParts) * cluster[0], parts.tiles}, threads,
      sharedBytes,
      [&](BlockBuilder &block) {
        Value number = block.div(block.block[0], cluster[0]);
        emit(block, plan.getItem(block, number, memory));
      },
      cluster);
  // What copies has no sums.
  if (plan.numParts)
    BlockBuilder::launch(b, loc, {groups * cluster[0], parts.tiles},
                         parts.threads,
                         /*sharedBytes=*/0, [&](BlockBuilder &block) {
                           Value number = block.div(block.block[0], cluster[0]);
                           emit(block, plan.getSum(block, number, memory));
                         });
}

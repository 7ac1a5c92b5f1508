// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix by warpgroups.
//
// The thread blocks of a cluster go through the positions at which one of
// their lines stores a block, together. One thread of each copies: its part of
// the activations there, which go to those thread blocks with the same
// tokens that store a block there, and its part of the blocks of the weight,
// which go to all with the same outputs. A stage is full when its bytes are
// there; it is empty when all of the cluster have multiplied it.
// Warpgroups multiply out of shared memory and keep their sums in registers.

#include "WarpgroupSpMM.h"
#include "bsr/Codegen/GPU/Core/WarpgroupMultiplier.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// Rows of activations in shared memory, 64 tokens.
static constexpr int64_t rowBytes = StageLayout::boxBytes,
                         rowTokens = StageLayout::boxTokens;

std::optional<WarpgroupSpMM> WarpgroupSpMM::match(const BlockProduct &operands,
                                                  GPUAttr target) {
  const Chip &chip = *findChip(target.getChip());
  bool isGiven = target.getShareTokens() != 0;
  WarpgroupSpMM product;
  // A tile that is given otherwise is one of warps.
  if ((isTileGiven(target) && !isGiven) ||
      !operands.fitsFragments(/*tf32=*/false) ||
      !product.setShape(operands, /*isOnTensorCores=*/true))
    return std::nullopt;
  const SpMMShape &shape = product.shape;
  auto tile = WarpgroupTile::choose(
      shape, chip, target.getTileOutputs(), target.getTileTokens(),
      std::min(target.getShareOutputs(), mostShares), target.getShareTokens());
  if (!tile)
    return std::nullopt;
  auto warps = SpMMTile::choose(shape, chip, /*outputs=*/0, /*tokens=*/0,
                                /*shareOutputs=*/0);
  if (!isGiven && warps &&
      bound(warps->getWork(shape), chip).seconds <=
          bound(tile->getWork(shape), chip).seconds)
    return std::nullopt;
  product.tile = *tile;
  product.plan = tile->getCutPlan(shape, chip, isTileGiven(target));
  product.parts = {
      product.plan.numParts, tile->shareOutputs, tile->getTokenTiles(shape),
      WarpgroupTile::warpgroups * warpgroupThreads, tile->getSums()};
  return product;
}

std::optional<ResultSpace> WarpgroupSpMM::getSpace() {
  return getRows(tile.groupTokens);
}

/// What multiplies a unit of blocks of the weight by activations.
static WarpgroupMultiplier createMultiplier(BlockBuilder &b, SpMMOp op,
                                            const SpMMShape &shape,
                                            int64_t tokens) {
  int64_t blockRowBytes = shape.blockCols * elementBytes;
  return WarpgroupMultiplier(
      b, {op.getX().getType().getElementType(), tokens, shape.inBlock},
      {blockRowBytes, /*isTransposed=*/!op.getTranspose(),
       shape.blockRows * blockRowBytes},
      {rowBytes, /*isTransposed=*/true, shape.inBlock * rowBytes});
}

namespace mlir::bsr::gpu {
/// What a thread does.
class WarpgroupSpMMEmitter {
public:
  WarpgroupSpMMEmitter(WarpgroupSpMM &product, const SpMMLaunch &launch,
                       const ChunkRange &range, BlockBuilder &b);
  void emit();

private:
  using Stage = BarrierPipeline::Stage;

  /// The slots of `count` lines of the cluster from `first` on.
  SmallVector<Value> loadSlots(Value chunk, Value first, int64_t count);
  Value loadPosition(Value chunk);
  Value clampChunk(Value chunk) {
    return b.min(chunk, b.constant(product.plan.getMaxChunks() - 1));
  }
  /// True if one of the lines of a unit has a block.
  Value isPresent(ValueRange slots);

  void produce();
  /// `sharers` are the thread blocks along outputs that have a block in the
  /// chunk, a bit each.
  void copyChunk(Stage stage, Value position, Value sharers, ValueRange slots);
  void copySlab(Value to, Value position, Value sharers, Value barrier);
  Value findSharers(Value chunk);
  void copyUnit(Value to, ValueRange slots, Value barrier);

  void consume();
  SmallVector<Value> getInitialSums();
  SmallVector<Value> multiplyChunk(Value slab, ValueRange slots,
                                   ValueRange sums);
  /// Stores sums, or has the epilogue or parts take them: of all units.
  void finish(ValueRange units);
  void finishWhole(ValueRange sums);
  void store(int64_t unit, Value column, ValueRange rows);
  void emitEpilogue(int64_t unit, Value column, ValueRange rows);

  /// The first output of unit `unit` of the warpgroup, and that of the thread
  /// in it.
  Value getFirstOutput(int64_t unit);
  Value getOutput(int64_t unit);

  WarpgroupSpMM &product;
  const SpMMShape &shape;
  const WarpgroupTile &tile;
  const SpMMLaunch &launch;
  const ChunkRange &range;
  BlockBuilder &b;
  Type i32;
  int64_t unitLines;
  /// What multiplies a unit's blocks.
  WarpgroupMultiplier multiplier;

  /// The thread block in its cluster, along outputs and along tokens.
  Value rankOutputs, rankTokens;
  /// The thread block along tokens: its batch and first token.
  Value batch, tokenTile;
  Value warpgroup;
  BarrierPipeline ring;
  /// The plan of the group.
  Value positions, slots;
};
} // namespace mlir::bsr::gpu

WarpgroupSpMMEmitter::WarpgroupSpMMEmitter(WarpgroupSpMM &product,
                                           const SpMMLaunch &launch,
                                           const ChunkRange &range,
                                           BlockBuilder &b)
    : product(product), shape(product.shape), tile(product.tile),
      launch(launch), range(range), b(b), i32(b.b.getI32Type()),
      unitLines(WarpgroupTile::getUnitLines(shape)),
      multiplier(createMultiplier(b, product.op, shape, tile.groupTokens)),
      ring(b, tile.stages, tile.getStageBytes(shape), tile.getClusterBlocks()) {
  rankOutputs = b.rem(b.block[0], tile.shareOutputs);
  rankTokens = b.rem(b.block[1], tile.shareTokens);
  const Activations &x = shape.activations;
  int64_t tilesPerBatch = llvm::divideCeil(x.tokens, tile.tokens);
  batch = b.div(b.block[1], tilesPerBatch);
  tokenTile = b.mul(b.rem(b.block[1], tilesPerBatch), tile.tokens);
  // What bsr-verify-kernels knows of threads is how many there are.
  warpgroup =
      b.rem(b.div(b.thread, warpgroupThreads), WarpgroupTile::warpgroups);

  int64_t chunks = product.plan.getMaxChunks();
  auto ofGroup = [&](Value array, int64_t each) {
    return b.atFar(b.getPointer(array), range.group, chunks * each, i32);
  };
  positions = ofGroup(launch.memory[1], 1);
  slots = ofGroup(launch.memory[2], product.plan.lines);
}

SmallVector<Value> WarpgroupSpMMEmitter::loadSlots(Value chunk, Value first,
                                                   int64_t count) {
  Value at = b.multiplyAdd(clampChunk(chunk), product.plan.lines, first);
  return b.loadIntegers(b.at(slots, at, i32), count);
}

Value WarpgroupSpMMEmitter::loadPosition(Value chunk) {
  return b.load(b.at(positions, clampChunk(chunk), i32), i32);
}

Value WarpgroupSpMMEmitter::isPresent(ValueRange slots) {
  // Slots that are none are one number, the largest.
  Value least = slots.front();
  for (Value slot : slots.drop_front())
    least = b.min(least, slot);
  return b.less(least, b.constant(shape.slots));
}

Value WarpgroupSpMMEmitter::findSharers(Value chunk) {
  int64_t lines = tile.getLines(shape);
  Value sharers = b.constant(0);
  SmallVector<Value> all =
      loadSlots(chunk, b.constant(0), tile.getClusterLines(shape));
  for (int64_t rank = 0; rank != tile.shareOutputs; ++rank)
    sharers = b.bitOr(
        sharers, b.select(isPresent(ValueRange(all).slice(rank * lines, lines)),
                          b.constant(int64_t(1) << rank), b.constant(0)));
  return sharers;
}

void WarpgroupSpMMEmitter::copySlab(Value to, Value position, Value sharers,
                                    Value barrier) {
  int64_t boxes = tile.tokens / rowTokens / tile.shareOutputs;
  int64_t features = shape.length * shape.inBlock;
  Value row = b.multiplyAdd(position, shape.inBlock, b.mul(batch, features));
  Value blocks;
  if (tile.shareOutputs != 1)
    blocks = b.shiftLeft(sharers, b.mul(rankTokens, tile.shareOutputs));
  for (int64_t box = 0; box != boxes; ++box) {
    Value number = b.multiplyAdd(rankOutputs, boxes, b.constant(box));
    copyBox(b, b.at(b.multiplyAdd(number, shape.inBlock * rowBytes, to)),
            launch.xMap, row, b.multiplyAdd(number, rowTokens, tokenTile),
            barrier, blocks);
  }
}

void WarpgroupSpMMEmitter::copyUnit(Value to, ValueRange slots, Value barrier) {
  int64_t rows = shape.blockRows / tile.shareTokens;
  int64_t partBytes = rows * shape.blockCols * elementBytes;
  Value part = b.mul(rankTokens, rows);
  Value blocks;
  if (tile.shareTokens != 1) {
    int64_t bits = 0;
    for (int64_t rank = 0; rank != tile.shareTokens; ++rank)
      bits |= int64_t(1) << (rank * tile.shareOutputs);
    blocks = b.shiftLeft(b.constant(bits), rankOutputs);
  }
  to = b.multiplyAdd(rankTokens, partBytes, to);
  for (auto [line, slot] : llvm::enumerate(slots)) {
    int64_t offset = int64_t(line) * tile.shareTokens * partBytes;
    copyBox(b, b.at(b.add(to, offset)), launch.valuesMap,
            b.multiplyAdd(slot, shape.blockRows, part), b.constant(0), barrier,
            blocks);
  }
}

void WarpgroupSpMMEmitter::copyChunk(Stage stage, Value position, Value sharers,
                                     ValueRange slots) {
  ring.waitForEmpty(stage);
  Value full = ring.getFull(stage);
  Value bytes = b.constant(tile.getSlabBytes(shape));
  if (tile.shareOutputs != 1) {
    Value own = b.bitAnd(b.shiftRight(sharers, rankOutputs), b.constant(1));
    bytes = b.mul(own, tile.getSlabBytes(shape));
  }
  int64_t unitBytes = WarpgroupTile::getUnitBytes(shape);
  SmallVector<Value> present;
  for (int64_t unit = 0; unit != tile.units; ++unit) {
    present.push_back(isPresent(slots.slice(unit * unitLines, unitLines)));
    bytes = b.add(
        bytes, b.select(present.back(), b.constant(unitBytes), b.constant(0)));
  }
  expectBytes(b, full, bytes);
  Value to = ring.getBegin(stage);
  copySlab(to, position, sharers, full);
  to = b.add(to, tile.getSlabBytes(shape));
  for (int64_t unit = 0; unit != tile.units; ++unit)
    b.when(present[unit], [&] {
      copyUnit(b.add(to, unit * unitBytes),
               slots.slice(unit * unitLines, unitLines), full);
    });
}

void WarpgroupSpMMEmitter::produce() {
  int64_t lines = tile.getLines(shape);
  Value first = b.mul(rankOutputs, lines);
  // A chunk that no other thread block knows of is one of this one's lines.
  auto findAll = [&](Value chunk) {
    return tile.shareOutputs == 1 ? b.constant(1) : findSharers(chunk);
  };
  auto load = [&](Value chunk) {
    SmallVector<Value> sources{loadPosition(chunk), findAll(chunk)};
    llvm::append_range(sources, loadSlots(chunk, first, lines));
    return sources;
  };
  Stage stage = ring.getFirst();
  ring.produce(
      {range.first, range.end}, stage,
      [&](Value, Stage stage, ValueRange sources) {
        copyChunk(stage, sources[0], sources[1], sources.drop_front(2));
      },
      load);
}

Value WarpgroupSpMMEmitter::getFirstOutput(int64_t unit) {
  Value first = b.mul(b.block[0], tile.units);
  if (tile.groupUnits != tile.units)
    first = b.multiplyAdd(warpgroup, tile.groupUnits, first);
  return b.mul(b.add(first, unit), warpgroupRows);
}

Value WarpgroupSpMMEmitter::getOutput(int64_t unit) {
  Value warp = b.rem(b.warp, warpgroupThreads / BlockBuilder::warpThreads);
  Value inUnit = b.multiplyAdd(warp, fragmentRows, b.div(b.lane, 4));
  return b.add(getFirstOutput(unit), inUnit);
}

SmallVector<Value> WarpgroupSpMMEmitter::getInitialSums() {
  SmallVector<Value> sums;
  for (int64_t unit = 0; unit != tile.groupUnits; ++unit) {
    SmallVector<Value> starts;
    for (int64_t row = 0; row != multiplier.numRows; ++row)
      starts.push_back(product.loadStart(
          b, launch.kernel, range,
          b.add(getOutput(unit), multiplier.layout.getRow(row))));
    llvm::append_range(sums, multiplier.fillRows(starts));
  }
  return sums;
}

SmallVector<Value> WarpgroupSpMMEmitter::multiplyChunk(Value slab,
                                                       ValueRange slots,
                                                       ValueRange sums) {
  int64_t boxBytes = shape.inBlock * rowBytes;
  Value units = b.add(slab, tile.getSlabBytes(shape));
  bool hasOwnUnits = tile.groupUnits != tile.units;
  int64_t unitBytes = WarpgroupTile::getUnitBytes(shape);
  if (hasOwnUnits)
    units = b.multiplyAdd(warpgroup, tile.groupUnits * unitBytes, units);
  else
    slab =
        b.multiplyAdd(warpgroup, tile.groupTokens / rowTokens * boxBytes, slab);
  SmallVector<Value> next;
  for (int64_t unit = 0; unit != tile.groupUnits; ++unit) {
    Value isThere = isPresent(slots.slice(unit * unitLines, unitLines));
    llvm::append_range(next, b.when(isThere, sums[unit], [&] {
      return multiplier.multiply(b.at(b.add(units, unit * unitBytes)),
                                 b.at(slab), sums[unit]);
    }));
  }
  return next;
}

void WarpgroupSpMMEmitter::consume() {
  int64_t lines = tile.groupUnits * unitLines;
  Value first = b.mul(rankOutputs, tile.getLines(shape));
  if (tile.groupUnits != tile.units)
    first = b.multiplyAdd(warpgroup, lines, first);
  Stage stage = ring.getFirst();
  finish(ring.consume(
      {range.first, range.end}, stage, getInitialSums(),
      [&](Value, Value begin, ValueRange slots, ValueRange sums) {
        return multiplyChunk(begin, slots, sums);
      },
      [&](Value chunk) { return loadSlots(chunk, first, lines); }));
}

void WarpgroupSpMMEmitter::finish(ValueRange units) {
  SmallVector<Value> sums;
  for (Value unit : units)
    llvm::append_range(sums, unpackSums(b, unit));
  product.finish(b, range, launch.memory, rankOutputs, sums,
                 [&](ValueRange sums) { finishWhole(sums); });
}

void WarpgroupSpMMEmitter::finishWhole(ValueRange sums) {
  Value column = tokenTile;
  if (tile.groupUnits == tile.units)
    column = b.multiplyAdd(warpgroup, tile.groupTokens, column);
  auto finishAll = [&] {
    int64_t count = multiplier.numSums;
    for (int64_t unit = 0; unit != tile.groupUnits; ++unit) {
      SmallVector<Value> rows =
          multiplier.getRows(sums.slice(unit * count, count));
      if (product.epilogue)
        emitEpilogue(unit, column, rows);
      else
        store(unit, column, rows);
    }
  };
  // Of a cluster, some thread blocks may lie beyond the last batch.
  const Activations &x = shape.activations;
  int64_t tiles = x.batches * llvm::divideCeil(x.tokens, tile.tokens);
  if (tiles % tile.shareTokens == 0)
    finishAll();
  else
    b.when(b.less(batch, b.constant(x.batches)), finishAll);
}

void WarpgroupSpMMEmitter::store(int64_t unit, Value column, ValueRange rows) {
  int64_t outputs = shape.numLines * shape.outBlock;
  bool isRagged = shape.activations.tokens % tile.tokens != 0;
  int64_t perRow = int64_t(rows.size()) / multiplier.numRows;
  for (int64_t row = 0; row != multiplier.numRows; ++row) {
    Value output = b.add(getOutput(unit), multiplier.layout.getRow(row));
    b.when(b.less(output, b.constant(outputs)), [&] {
      storeRow(b, multiplier.layout, rows.slice(row * perRow, perRow), launch.y,
               {batch, output}, column, isRagged);
    });
  }
}

void WarpgroupSpMMEmitter::emitEpilogue(int64_t unit, Value column,
                                        ValueRange rows) {
  WarpSums warp;
  warp.sums = SmallVector<Value>(rows);
  warp.numRows = multiplier.numRows;
  warp.at = {batch, getOutput(unit)};
  warp.column = column;
  warp.warpNumber = b.div(column, tile.groupTokens);
  warp.areRowsRagged = shape.numLines % tile.getClusterLines(shape);
  warp.areColumnsRagged = shape.activations.tokens % tile.tokens;
  product.epilogue->emit(b, warp);
}

void WarpgroupSpMMEmitter::emit() {
  if (range.numParts)
    return finish(getInitialSums());
  int64_t consumers = WarpgroupTile::warpgroups * warpgroupThreads;
  // All of the cluster say when they have read a stage, not only those that are
  // copied to: who is copied nothing to might else say so of the next one
  // before others have of this one.
  ring.split(
      consumers, b.equal(b.thread, b.constant(consumers)), [&] { consume(); },
      [&] { produce(); });
}

LogicalResult WarpgroupSpMM::emit(OpBuilder &b, KernelBody &kernel,
                                  ValueRange scratch) {
  SpMMLaunch launched = begin(b, kernel, scratch);
  createMaps(b, launched, tile.shareTokens);
  launch(b, launched, WarpgroupTile::threads, tile.getSharedBytes(shape),
         [&](BlockBuilder &block, const ChunkRange &range) {
           WarpgroupSpMMEmitter(*this, launched, range, block).emit();
         },
         {tile.shareOutputs, tile.shareTokens});
  return epilogue ? epilogue->end(b) : success();
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the warpgroups of a cluster go through a plan by line.
//
// The thread blocks of a cluster go through the positions at which one of
// their lines stores a block, together. One thread of each copies: its share of
// the activations there, which go to those thread blocks with the same
// tokens that store a block there, and its share of the blocks of the weight,
// which go to all with the same outputs. A stage is full when its bytes are
// there; it is empty when all of the cluster have multiplied it.
// Warpgroups multiply out of shared memory and keep their sums in registers.

#include "WarpgroupMainloop.h"
#include "bsr/Codegen/GPU/Core/Mbarriers.h"
#include "bsr/Codegen/GPU/Core/WarpgroupMultiplier.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// Rows of activations in shared memory, 64 tokens.
static constexpr int64_t rowBytes = StageLayout::boxBytes,
                         rowTokens = StageLayout::boxTokens;

WarpgroupMainloop::WarpgroupMainloop(const SpMMContext &product,
                                     const WarpgroupTile &tile, BlockBuilder &b)
    : SpMMMainloop(product, tile.groupUnits, /*areNeighbours=*/false,
                   tile.getGrid(product.shape), b),
      tile(tile), unitLines(WarpgroupTile::getUnitLines(product.shape)),
      unitBytes(WarpgroupTile::getUnitBytes(product.shape)),
      rankTokens(b.rem(b.block[1], tile.shareTokens)),
      // What bsr-verify-kernels knows of threads is how many there are.
      warpgroup(
          b.rem(b.div(b.thread, warpgroupThreads), WarpgroupTile::warpgroups)),
      ring(b, tile.stages, tile.getStageBytes(shape), tile.getClusterBlocks()) {
  if (!hasOwnUnits())
    firstToken = b.multiplyAdd(warpgroup, tile.groupTokens, tokenTile);
  positions = getPlanArray(1, 1);
  slots = getPlanArray(2, plan.lines);
}

std::unique_ptr<Multiplier> WarpgroupMainloop::createMultiplier() {
  SpMMOp op = product.op;
  int64_t blockRowBytes = shape.blockCols * elementBytes;
  return std::make_unique<WarpgroupMultiplier>(
      b,
      WarpgroupMultiplier::Shape{op.getX().getType().getElementType(),
                                 tile.groupTokens, shape.inBlock},
      WarpgroupMultiplier::Operand{blockRowBytes,
                                   /*isTransposed=*/!op.getTranspose(),
                                   shape.blockRows * blockRowBytes},
      WarpgroupMultiplier::Operand{rowBytes, /*isTransposed=*/true,
                                   shape.inBlock * rowBytes});
}

SmallVector<Value> WarpgroupMainloop::loadSlots(Value chunk, Value first,
                                                int64_t count) {
  Value at = b.multiplyAdd(clampChunk(chunk), plan.lines, first);
  return b.loadIntegers(b.at(slots, at, i32), count);
}

Value WarpgroupMainloop::loadPosition(Value chunk) {
  return b.load(b.at(positions, clampChunk(chunk), i32), i32);
}

Value WarpgroupMainloop::isPresent(ValueRange slots) {
  // Slots that are none are one number, the largest.
  Value least = slots.front();
  for (Value slot : slots.drop_front())
    least = b.min(least, slot);
  return b.less(least, b.constant(shape.slots));
}

Value WarpgroupMainloop::findSharers(Value chunk) {
  int64_t lines = tile.getLines(shape);
  Value sharers = b.constant(0);
  SmallVector<Value> all =
      loadSlots(chunk, b.constant(0), tile.getClusterLines(shape));
  for (int64_t block = 0; block != tile.shareOutputs; ++block)
    sharers =
        b.bitOr(sharers,
                b.select(isPresent(ValueRange(all).slice(block * lines, lines)),
                         b.constant(int64_t(1) << block), b.constant(0)));
  return sharers;
}

void WarpgroupMainloop::copySlab(Value to, Value position, Value sharers,
                                 Value barrier) {
  int64_t boxes = tile.tokens / rowTokens / tile.shareOutputs;
  Value blocks;
  if (tile.shareOutputs != 1)
    blocks = b.shiftLeft(sharers, b.mul(rankTokens, tile.shareOutputs));
  for (int64_t box = 0; box != boxes; ++box) {
    Value number = b.multiplyAdd(rank, boxes, b.constant(box));
    product.launch.x.copy(
        b, b.at(b.multiplyAdd(number, shape.inBlock * rowBytes, to)),
        {batch, b.mul(position, shape.inBlock),
         b.multiplyAdd(number, rowTokens, tokenTile)},
        barrier, blocks);
  }
}

void WarpgroupMainloop::copyUnit(Value to, ValueRange slots, Value barrier) {
  int64_t rows = shape.blockRows / tile.shareTokens;
  int64_t rowsBytes = rows * shape.blockCols * elementBytes;
  Value firstRow = b.mul(rankTokens, rows);
  Value blocks;
  if (tile.shareTokens != 1) {
    int64_t bits = 0;
    for (int64_t block = 0; block != tile.shareTokens; ++block)
      bits |= int64_t(1) << (block * tile.shareOutputs);
    blocks = b.shiftLeft(b.constant(bits), rank);
  }
  to = b.multiplyAdd(rankTokens, rowsBytes, to);
  for (auto [line, slot] : llvm::enumerate(slots)) {
    int64_t offset = int64_t(line) * tile.shareTokens * rowsBytes;
    copyBox(b, b.at(b.add(to, offset)), product.launch.valuesMap,
            b.multiplyAdd(slot, shape.blockRows, firstRow), b.constant(0),
            barrier, blocks);
  }
}

void WarpgroupMainloop::copyChunk(Stage stage, Value position, Value sharers,
                                  ValueRange slots) {
  Value full = ring.getFull(stage);
  Value bytes = b.constant(tile.getSlabBytes(shape));
  if (tile.shareOutputs != 1) {
    Value own = b.bitAnd(b.shiftRight(sharers, rank), b.constant(1));
    bytes = b.mul(own, tile.getSlabBytes(shape));
  }
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

void WarpgroupMainloop::produce() {
  int64_t lines = tile.getLines(shape);
  Value first = b.mul(rank, lines);
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
      {product.range.first, product.range.end}, stage,
      [&](Value, Stage stage, ValueRange sources) {
        copyChunk(stage, sources[0], sources[1], sources.drop_front(2));
      },
      load);
}

Value WarpgroupMainloop::getOutput(int64_t accumulator, Value row) {
  Value unit = b.mul(b.block[0], tile.units);
  if (hasOwnUnits())
    unit = b.multiplyAdd(warpgroup, tile.groupUnits, unit);
  Value warp = b.rem(b.warp, warpgroupThreads / BlockBuilder::warpThreads);
  return b.add(b.mul(b.add(unit, accumulator), warpgroupRows),
               b.multiplyAdd(warp, fragmentRows, row));
}

SmallVector<Value>
WarpgroupMainloop::multiplyChunk(const Multiplier &multiplier, Value slab,
                                 ValueRange slots, ValueRange sums) {
  int64_t boxBytes = shape.inBlock * rowBytes;
  Value units = b.add(slab, tile.getSlabBytes(shape));
  if (hasOwnUnits())
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

void WarpgroupMainloop::consume(const Multiplier &multiplier, Begin begin,
                                Finish finish) {
  int64_t lines = tile.groupUnits * unitLines;
  Value first = b.mul(rank, tile.getLines(shape));
  if (hasOwnUnits())
    first = b.multiplyAdd(warpgroup, lines, first);
  Stage stage = ring.getFirst();
  finish(ring.consume(
      {product.range.first, product.range.end}, stage, begin(),
      [&](Value, Value begin, ValueRange slots, ValueRange sums) {
        return multiplyChunk(multiplier, begin, slots, sums);
      },
      [&](Value chunk) { return loadSlots(chunk, first, lines); }));
}

void WarpgroupMainloop::run(const Multiplier &multiplier, Begin begin,
                            Finish finish) {
  int64_t consumers = WarpgroupTile::warpgroups * warpgroupThreads;
  // All thread blocks of the cluster release a stage that they have read, not
  // only those that receive copies: a block that receives none could otherwise
  // release the next stage before the others release this one.
  ring.split(
      consumers, b.equal(b.thread, b.constant(consumers)),
      [&] { consume(multiplier, begin, finish); }, [&] { produce(); });
}

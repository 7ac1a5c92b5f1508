// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops of a bsr.spmm that gathers.

#include "GatherNest.h"
#include "PairProducts.h"
#include "SplitLanes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// How many bytes of rows lie between those that are prefetched and those that
/// are read, and how many blocks at most, or rows if these are more: measured
/// on Zen 5, where rows come from the third-level cache.
static constexpr int64_t aheadBytes = 8192, maxAhead = 4, maxRowsAhead = 16;
/// Bytes of the next panel's rows that a line prefetches, at most: of more
/// prefetches at once, most wait for a buffer of the first-level cache.
static constexpr int64_t maxShareBytes = 4096;

GatherNest::GatherNest(SpMMOp op, CPUTarget target,
                       const ProductSchedule &given, bool isInMemory,
                       bool hasCopy)
    : pattern(op.getPattern().getType()), walked(getView(!op.getTranspose())),
      lines(pattern.getNumLines(walked)),
      outBlock(pattern.getBlockExtent(walked)),
      inBlock(pattern.getBlockExtent(getOther(walked))),
      outType(op.getY().getType().getElementType()),
      tiles(tileEvenly(outBlock, *given.rows)), panel(target.panel()),
      panels(*given.panels), halves(tiles.front().size > CPUTarget::tileRows),
      unroll(getDivisor(inBlock, 4)),
      isOrdered(given.walk == Walk::OrderedGather) {
  OpBuilder b(op);
  sumType = getSumType(
      b, {op.getValues().getType(), op.getX().getType(), op.getY().getType()});
  isWidened = !hasCopy && sumType != op.getValues().getType().getElementType();
  isRounded = sumType != outType;
  hasPairs =
      inBlock % 2 == 0 && arePaired(target, op.getValues(), op.getX(), sumType);
  isRowWidened = !hasPairs && sumType != op.getX().getType().getElementType();
  isSplit = !hasPairs && canSplit(op.getX(), sumType, panel);
  isPacked = hasPairs && !op.getTranspose();
  if (hasPairs)
    unroll = 2 * getDivisor(inBlock / 2, 2);
  int64_t element = hasPairs ? 2 : 4;
  int64_t rows = element * inBlock * panels * panel / (halves ? 2 : 1);
  int64_t features = inBlock * pattern.getNumLines(getOther(walked));
  // A row of one cache line is prefetched once for the multiply-adds of a tile;
  // of more, it would be an instruction for each few of them.
  int64_t ofLine = pattern.getSlots() / lines * (rows + element * outBlock);
  rereads =
      isOrdered && rows <= lineBytes && ofLine > target.firstCache / 4 * 3;
  int64_t share = llvm::divideCeil(features, lines);
  int64_t panelBytes = element * panels * panel;
  if (isOrdered && 2 * panelBytes * features <= target.secondCache &&
      panelBytes * share <= maxShareBytes)
    rowsOfNext = share;
  if (tiles.front().count > 1 && !rereads) {
    auto [base, size, count] = tiles.front();
    tiles.front().count = 1;
    tiles.insert(tiles.begin() + 1, {base + size, size, count - 1});
  }
  ahead = given.ahead.value_or(std::clamp<int64_t>(
      aheadBytes / rows, 1,
      std::max(maxAhead, maxRowsAhead * (halves ? 2 : 1) / inBlock)));
  prefetches =
      given.ahead ? ahead != 0 : inBlock * outBlock >= (inBlock == 1 ? 8 : 16);
  // A line that is computed in one go leaves its sums in registers: what comes
  // from another k-block is read from memory. Only what has to be converted or
  // packed, for all tiles at once, is worth that.
  bool isConverted =
      hasPairs ? isWidened && !isInMemory : isWidened || isRowWidened;
  bool isPrepared = isPacked || (isConverted && tiles.size() > 1);
  int64_t bytes = rows + element * inBlock * outBlock;
  blocks =
      isPrepared ? std::max<int64_t>(1, target.streamedBytes() / bytes) : 0;
  // The rows of a k-block are read when its first tile converts them.
  if (isRowWidened && !given.ahead)
    ahead = std::max(ahead, blocks);
}

SmallVector<std::pair<Index, Index>>
GatherNest::getStreamed(Emitter &e, Index tile, Index step) const {
  int64_t others = -1;
  for (const Tiles &group : tiles)
    others += group.count;
  int64_t perLine = 8 * lineBytes / outType.getIntOrFloatBitWidth();
  int64_t perRow = llvm::divideCeil(panel, perLine), all = outBlock * perRow;
  int64_t share = llvm::divideCeil(all, others);
  int64_t steps =
      std::max<int64_t>(1, pattern.getSlots() * (inBlock / unroll) / lines);
  int64_t count = llvm::divideCeil(share, steps);
  Value first =
      e.materialize(e.multiplyAdd(tile.plus(-1), share, Index::constant(0)));
  SmallVector<std::pair<Index, Index>> places;
  for (int64_t i : llvm::seq(count)) {
    Value number = arith::MinUIOp::create(
        e.b, e.loc,
        e.materialize(e.multiplyAdd(step, count, Index::constant(i))),
        e.constant(share - 1));
    number = arith::AddIOp::create(e.b, e.loc, first, number);
    number = arith::MinUIOp::create(e.b, e.loc, number, e.constant(all - 1));
    auto [row, within] = e.split(Index::of(number), perRow);
    places.push_back({row, e.multiplyAdd(within, perLine, Index::constant(0))});
  }
  return places;
}

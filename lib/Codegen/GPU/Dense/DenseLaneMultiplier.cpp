// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products on arithmetic units.
//
// The lanes of a warp are 4 by 8, along rows and columns; a lane keeps the sums
// of up to 8 rows and 16 columns in registers, which are four neighbours and
// then, behind those of the other lanes, four more. It takes 4 inner numbers at
// a time, of each operand in loads of 16 bytes: of four neighbours, or, where
// inner numbers lie side by side, of those of one row or column.

#include "DenseMultiplier.h"
#include "bsr/Codegen/GPU/Core/TileSearch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// Lanes of a warp along rows and along columns.
static constexpr int64_t rowLanes = 4, colLanes = 8;
/// Numbers of a load, which are neighbours.
static constexpr int64_t four = 4;
static constexpr int64_t floatBytes = 4;

/// What the launches of `tile` do, about.
static SmallVector<KernelWork, 2> getLaunches(const DenseOperands &operands,
                                              const DenseTile &tile) {
  // Of a block of threads.
  KernelWork work;
  double length = double(tile.partLength), warps = double(blockWarps);
  double sums = double(tile.left.tile * tile.right.tile);
  double products = sums * length / BlockBuilder::warpThreads;
  double laneRows = double(tile.getWarpRows()) / rowLanes;
  double laneCols = double(tile.getWarpCols()) / colLanes;
  double loads = warps * length * (laneRows + laneCols) / four;
  double stages = length / DenseTile::innerTile;
  double copies = 0;
  for (auto [side, place] : {std::pair(&operands.left, &tile.left),
                             std::pair(&operands.right, &tile.right)})
    copies += double(place->tile) * length /
              double(side->copied * BlockBuilder::warpThreads);
  // Counted in kernels that were emitted.
  constexpr double perStage = 60, perCopy = 3;
  work.instructions =
      products + loads + copies * perCopy + warps * perStage * stages;
  work.arithmetic[static_cast<unsigned>(Unit::Float)] = products;
  work.sharedBytes = loads * copiedBytes * BlockBuilder::warpThreads;
  return tile.getLaunches(operands, work);
}

/// What kernels do in which an element of the result is a thread's, about.
static KernelWork getPlainWork(const DenseOperands &operands) {
  KernelWork work;
  double results = double(operands.getNumSums());
  double products =
      results * double(operands.inner.size) / BlockBuilder::warpThreads;
  constexpr double threads = 128;
  work.blocks = std::ceil(results / threads);
  work.warps = threads / BlockBuilder::warpThreads;
  // Counted in kernels that were emitted: a product is two loads, of which one
  // brings an element for each lane, and the other one the same for all.
  constexpr double perProduct = 4, sectorBytes = 32;
  work.instructions = products * perProduct;
  work.arithmetic[static_cast<unsigned>(Unit::Float)] = products;
  double bytes =
      products * (BlockBuilder::warpThreads * floatBytes + sectorBytes);
  work.sharedBytes = bytes;
  work.l2Bytes = bytes;
  return work;
}

/// The tile that takes least time on the chip, of those of `rows` by `cols` if
/// these are not 0; none if none fits.
static std::optional<DenseTile> choose(const DenseOperands &operands,
                                       const Chip &chip, int64_t rows,
                                       int64_t cols) {
  constexpr std::pair<int64_t, int64_t> sizes[] = {
      {128, 256}, {128, 128}, {64, 128}, {64, 64}};
  TileSearch<DenseTile> search(chip);
  for (auto [someRows, someCols] : sizes) {
    if ((rows != 0 && someRows != rows) || (cols != 0 && someCols != cols))
      continue;
    DenseTile tile = DenseTile::get(
        operands, someRows, someCols, /*isSwizzled=*/true,
        [](int64_t length, bool) { return length * floatBytes; });
    for (int64_t parts = tile.getMostParts(operands); parts >= 1; --parts) {
      tile.setParts(operands, parts);
      if (tile.setStages(operands, chip))
        search.consider(tile, getLaunches(operands, tile));
    }
  }
  return search.best;
}

std::optional<DenseTile> bsr::gpu::chooseLaneTile(const DenseOperands &operands,
                                                  GPUAttr target) {
  if (!operands.type.isF32())
    return std::nullopt;
  const Chip &chip = *findChip(target.getChip());
  int64_t rows = target.getTileOutputs(), cols = target.getTileTokens();
  auto tile = choose(operands, chip, rows, cols);
  bool isGiven = tile && rows != 0 && cols != 0;
  if (!tile)
    tile = choose(operands, chip, /*rows=*/0, /*cols=*/0);
  if (tile && !isGiven &&
      bound(getPlainWork(operands), chip).seconds <=
          getSeconds(getLaunches(operands, *tile), chip))
    return std::nullopt;
  return tile;
}

namespace {
class Multiplier : public DenseMultiplier {
public:
  explicit Multiplier(const DenseWalk &walk);

  SmallVector<Value> multiply(Value left, Value right,
                              ValueRange sums) override;

private:
  /// The lane's part of an operand.
  struct Side {
    const DenseTile::Side &place;
    bool isInnerLast;
    /// Numbers of the lane, and the lanes along them.
    int64_t count, lanes;
    /// The lane's first number in the tile.
    Value first;

    /// The lane's number `number` in the tile, from its first one on.
    int64_t getNumber(int64_t number) const {
      return number / four * four * lanes + number % four;
    }
  };
  /// Where the lane's numbers of `side` are, in fours, at inner number `inner`
  /// of the stage, which 4 divides.
  SmallVector<Value> getPlaces(const Side &side, Value stage, Value inner);
  /// Four elements: of number `number` of the lane and 4 inner ones, or of 4
  /// numbers from it on and inner number `inner`.
  SmallVector<Value> load(const Side &side, ArrayRef<Value> places,
                          int64_t number, int64_t inner);
  /// Adds the products of 4 inner numbers to `sums`.
  void multiplyFour(Value left, Value right, Value inner,
                    MutableArrayRef<Value> sums);

  int64_t getSum(int64_t row, int64_t col) const {
    return row * cols.count + col;
  }

  BlockBuilder &b;
  Side rows, cols;
};
} // namespace

Multiplier::Multiplier(const DenseWalk &walk)
    : DenseMultiplier({/*isInFours=*/true, colLanes, /*rowsTogether=*/four,
                       /*rowDistance=*/four * rowLanes},
                      walk.tile.getWarpRows() / rowLanes,
                      walk.tile.getWarpRows() / rowLanes *
                          (walk.tile.getWarpCols() / colLanes)),
      b(walk.b), rows{walk.tile.left, walk.operands.left.isInnerLast,
                      walk.tile.getWarpRows() / rowLanes, rowLanes,
                      b.multiplyAdd(b.div(b.lane, colLanes), four,
                                    walk.warpRow)},
      cols{walk.tile.right, walk.operands.right.isInnerLast,
           walk.tile.getWarpCols() / colLanes, colLanes,
           b.multiplyAdd(b.rem(b.lane, colLanes), four, walk.warpCol)} {}

SmallVector<Value> Multiplier::getPlaces(const Side &side, Value stage,
                                         Value inner) {
  int64_t pitch = side.place.pitch;
  if (!side.isInnerLast) {
    Value at = b.multiplyAdd(side.first, floatBytes, stage);
    return SmallVector<Value>(side.count / four,
                              b.at(b.multiplyAdd(inner, pitch, at)));
  }
  Value row = b.multiplyAdd(side.first, pitch, stage);
  Value place = b.bitXor(b.mul(inner, floatBytes),
                         b.mul(b.rem(b.div(side.first, four), 8), copiedBytes));
  SmallVector<Value> places;
  for (int64_t number = 0; number != side.count; number += four) {
    int64_t moved = side.getNumber(number) / four % 8 * copiedBytes;
    places.push_back(b.at(b.add(row, b.bitXor(place, b.constant(moved)))));
  }
  return places;
}

SmallVector<Value> Multiplier::load(const Side &side, ArrayRef<Value> places,
                                    int64_t number, int64_t inner) {
  int64_t own = side.getNumber(number);
  int64_t offset = side.isInnerLast
                       ? own * side.place.pitch
                       : own * floatBytes + inner * side.place.pitch;
  return b.loadFloats(b.at(places[number / four], offset, b.b.getI8Type()),
                      b.b.getF32Type(), four);
}

void Multiplier::multiplyFour(Value left, Value right, Value inner,
                              MutableArrayRef<Value> sums) {
  // All of the left operand, by inner number and row.
  SmallVector<Value> leftPlaces = getPlaces(rows, left, inner);
  std::array<SmallVector<Value>, four> factors;
  for (SmallVector<Value> &ofInner : factors)
    ofInner.resize(rows.count);
  int64_t step = rows.isInnerLast ? 1 : four;
  for (int64_t row = 0; row != rows.count; row += step)
    for (int64_t i = 0; i != step; ++i) {
      SmallVector<Value> loaded = load(rows, leftPlaces, row, i);
      for (int64_t j = 0; j != four; ++j)
        (rows.isInnerLast ? factors[j][row] : factors[i][row + j]) = loaded[j];
    }
  // Of the right one four elements at a time.
  SmallVector<Value> rightPlaces = getPlaces(cols, right, inner);
  auto multiplyColumn = [&](int64_t col, int64_t inner, Value factor) {
    for (int64_t row = 0; row != rows.count; ++row) {
      Value &sum = sums[getSum(row, col)];
      sum = math::FmaOp::create(b.b, b.loc, factors[inner][row], factor, sum);
    }
  };
  step = cols.isInnerLast ? 1 : four;
  for (int64_t i = 0; i != step; ++i)
    for (int64_t col = 0; col != cols.count; col += step)
      for (auto [j, factor] : llvm::enumerate(load(cols, rightPlaces, col, i)))
        multiplyColumn(cols.isInnerLast ? col : col + int64_t(j),
                       cols.isInnerLast ? int64_t(j) : i, factor);
}

SmallVector<Value> Multiplier::multiply(Value left, Value right,
                                        ValueRange sums) {
  // What is multiplied without a loop around it, at most.
  constexpr int64_t mostProducts = 512;
  int64_t step = std::max<int64_t>(four, mostProducts / int64_t(sums.size()));
  return b.loop(b.constant(0), b.constant(DenseTile::innerTile), step, sums,
                [&](Value first, ValueRange sums) {
                  SmallVector<Value> next(sums);
                  for (int64_t inner = 0; inner != step; inner += four)
                    multiplyFour(left, right, b.add(first, inner), next);
                  return next;
                });
}

std::unique_ptr<DenseMultiplier>
bsr::gpu::createLaneMultiplier(const DenseWalk &walk) {
  return std::make_unique<Multiplier>(walk);
}

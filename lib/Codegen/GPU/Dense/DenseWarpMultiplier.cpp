// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products on tensor cores.
//
// A block of threads computes up to 128 by 128 sums. Operands lie in shared
// memory as they lie in global memory, and are transposed when fragments are
// loaded where that is the wrong way round.

#include "DenseMultiplier.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"
#include "bsr/Codegen/GPU/Core/TileSearch.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// What the launches of `tile` do, about.
static SmallVector<KernelWork, 2> getLaunches(const DenseOperands &operands,
                                              const DenseTile &tile) {
  // Of a block of threads.
  KernelWork work;
  double length = double(tile.partLength);
  double flops = 2.0 * double(tile.left.tile * tile.right.tile) * length;
  int64_t bytes = operands.getElementBytes();
  bool isTF32 = bytes == 4;
  bsr::gpu::TensorType type =
      isTF32 ? bsr::gpu::TensorType::TF32 : bsr::gpu::TensorType::Half;
  work.tensorFlops[static_cast<unsigned>(type)] = flops;
  // Instructions of PTX for an mma of 16 inner numbers, and for a stage,
  // counted in kernels that were emitted.
  double perProduct = isTF32 ? 8 : 2;
  constexpr double perStage = 60;
  work.instructions =
      perProduct * flops / (2 * fragmentRows * fragmentCols * fragmentRows) +
      perStage * double(blockWarps) * length / DenseTile::innerTile;
  // Warps along the columns load the same rows, and the other way round.
  work.sharedBytes = length * double(bytes) *
                     double(tile.left.tile * DenseTile::colWarps +
                            tile.right.tile * DenseTile::rowWarps);
  return tile.getLaunches(operands, work);
}

std::optional<DenseTile> bsr::gpu::chooseWarpTile(const DenseOperands &operands,
                                                  GPUAttr target) {
  // Sums are stored in pairs.
  if (!isMultiplied(operands.type, target.getTf32()) ||
      (!operands.norms && operands.getType().getShape().back() % 2))
    return std::nullopt;
  DenseTile tile =
      DenseTile::get(operands, operands.rows.size <= 64 ? 64 : 128,
                     operands.cols.size <= 64 ? 64 : 128, /*isSwizzled=*/false,
                     [&](int64_t length, bool isInnerLast) {
                       return Fragments::getPitch(
                           length, operands.getElementBytes(), isInnerLast);
                     });
  const Chip &chip = *findChip(target.getChip());
  TileSearch<DenseTile> search(chip);
  for (int64_t parts = tile.getMostParts(operands); parts >= 1; --parts) {
    tile.setParts(operands, parts);
    if (tile.setStages(operands, chip))
      search.consider(tile, getLaunches(operands, tile));
  }
  return search.best;
}

namespace {
class Multiplier : public DenseMultiplier {
public:
  Multiplier(const DenseWalk &walk, const WarpMultiplier &warp)
      : DenseMultiplier(SumLayout(), warp.getNumRows(), warp.getNumSums()),
        walk(walk), warp(warp) {}

  SmallVector<Value> multiply(Value left, Value right,
                              ValueRange sums) override;
  SmallVector<Value> getRows(ValueRange sums) const override {
    return warp.getRows(sums);
  }

private:
  const DenseWalk &walk;
  WarpMultiplier warp;
};
} // namespace

SmallVector<Value> Multiplier::multiply(Value left, Value right,
                                        ValueRange sums) {
  BlockBuilder &b = walk.b;
  const Fragments &fragments = warp.fragments;
  // Loads units of a side, whose first number of the warp is `warpFirst`.
  auto getLoad = [&](const DenseTile::Side &side, bool isInnerLast, bool isLeft,
                     Value warpFirst, Value at) {
    int64_t unit = isInnerLast ? side.pitch : fragments.elementBytes;
    Value place = fragments.getLanePlace(b, side.pitch, isInnerLast, isLeft);
    Value first = b.at(b.add(b.multiplyAdd(warpFirst, unit, at), place));
    return [=, &b, &side, &fragments](int64_t own, int64_t inner) {
      int64_t row = isInnerLast ? own : inner;
      int64_t column = isInnerLast ? inner : own;
      int64_t offset = row * side.pitch + column * fragments.elementBytes;
      return fragments.load(b, b.at(first, offset, b.b.getI8Type()), side.pitch,
                            isInnerLast, isLeft);
    };
  };
  auto loadLeft = getLoad(walk.tile.left, walk.operands.left.isInnerLast,
                          /*isLeft=*/true, walk.warpRow, left);
  auto loadRight = getLoad(walk.tile.right, walk.operands.right.isInnerLast,
                           /*isLeft=*/false, walk.warpCol, right);
  return warp.multiply(DenseTile::innerTile, loadLeft, loadRight,
                       WarpMultiplier::Kept::Right, sums);
}

std::unique_ptr<DenseMultiplier>
bsr::gpu::createWarpMultiplier(const DenseWalk &walk) {
  return std::make_unique<Multiplier>(
      walk, WarpMultiplier(walk.b, walk.operands.type,
                           walk.tile.getWarpRows() / fragmentRows,
                           walk.tile.getWarpCols() / fragmentCols));
}

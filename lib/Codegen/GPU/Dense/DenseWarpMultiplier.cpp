// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products on tensor cores.
//
// A thread block computes up to 128 by 128 sums. Operands lie in shared
// memory as they lie in global memory, and are transposed when fragments are
// loaded where that is the wrong way round.

#include "DenseMultiplier.h"
#include "bsr/Codegen/GPU/Core/TileSearch.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// What the launches of `tile` do, about.
static SmallVector<KernelWork, 2> getLaunches(const DenseOperands &operands,
                                              const DenseTile &tile) {
  // Of a thread block.
  KernelWork work;
  double length = double(tile.sliceLength);
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
                       return WarpMultiplier::getPitch(
                           length, operands.getElementBytes(), isInnerLast);
                     });
  const Chip &chip = *findChip(target.getChip());
  TileSearch<DenseTile> search(chip, std::mem_fn(&DenseTile::describe));
  for (int64_t slices = tile.getMostSlices(operands, chip); slices >= 1;
       --slices) {
    tile.setSlices(operands, slices);
    if (tile.setStages(operands, chip))
      search.consider(tile, getLaunches(operands, tile));
  }
  return search.best;
}

std::unique_ptr<Multiplier>
bsr::gpu::createWarpMultiplier(const DenseMainloop &mainloop) {
  const DenseTile &tile = mainloop.tile;
  WarpMultiplier::Operand left{
      tile.left.pitch, mainloop.operands.left.isInnerLast, mainloop.warpRow},
      right{tile.right.pitch, mainloop.operands.right.isInnerLast,
            mainloop.warpCol};
  return std::make_unique<WarpMultiplier>(
      mainloop.b,
      WarpMultiplier::Shape{mainloop.operands.type,
                            tile.getWarpRows() / fragmentRows,
                            tile.getWarpCols() / fragmentCols,
                            DenseTile::innerTile, Multiplier::Right},
      left, right);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products on tensor cores.
//
// A block of threads computes up to 128 by 128 sums. Operands lie in shared
// memory as they lie in global memory, and are transposed when fragments are
// loaded where that is the wrong way round.

#include "DenseMultiplier.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

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
  tile.setParts(operands);
  if (!tile.setStages(operands, *findChip(target.getChip())))
    return std::nullopt;
  return tile;
}

std::unique_ptr<Multiplier>
bsr::gpu::createWarpMultiplier(const DenseWalk &walk) {
  const DenseTile &tile = walk.tile;
  WarpMultiplier::Operand left{tile.left.pitch, walk.operands.left.isInnerLast,
                               walk.warpRow},
      right{tile.right.pitch, walk.operands.right.isInnerLast, walk.warpCol};
  return std::make_unique<WarpMultiplier>(
      walk.b,
      WarpMultiplier::Shape{walk.operands.type,
                            tile.getWarpRows() / fragmentRows,
                            tile.getWarpCols() / fragmentCols,
                            DenseTile::innerTile, Multiplier::Right},
      left, right);
}

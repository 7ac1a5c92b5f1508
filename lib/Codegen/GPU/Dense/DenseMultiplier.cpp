// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What multiplies in dense products.
//
// On tensor cores, operands lie in shared memory as they lie in global memory,
// and are transposed when fragments are loaded where that is the wrong way
// round.
//
// On arithmetic units, the lanes of a warp are 4 by 8, along rows and columns;
// a lane keeps the sums of up to 8 rows and 16 columns in registers, which are
// four neighbours and then, behind those of the other lanes, four more. It
// takes 4 inner numbers at a time, of each operand in loads of 16 bytes: of
// four neighbours, or, where inner numbers lie side by side, of those of one
// row or column.

#include "DenseMultiplier.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

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

std::unique_ptr<Multiplier>
bsr::gpu::createLaneMultiplier(const DenseMainloop &mainloop) {
  BlockBuilder &b = mainloop.b;
  constexpr int64_t four = DenseTile::laneNumbers;
  auto getOperand = [&](const DenseTile::Side &side, bool isInnerLast,
                        int64_t ofWarp, int64_t lanes, Value number) {
    return LaneMultiplier::Operand{side.pitch,     isInnerLast,  ofWarp / lanes,
                                   four,           four * lanes, number,
                                   side.isSwizzled};
  };
  SumLayout layout{
      /*areFragments=*/false, /*colsTogether=*/four, DenseTile::colLanes,
      /*rowsTogether=*/four, /*rowDistance=*/four * DenseTile::rowLanes};
  return std::make_unique<LaneMultiplier>(
      b,
      LaneMultiplier::Shape{b.b.getF32Type(), DenseTile::innerTile,
                            /*together=*/four},
      layout,
      getOperand(mainloop.tile.left, mainloop.operands.left.isInnerLast,
                 mainloop.tile.getWarpRows(), DenseTile::rowLanes,
                 b.multiplyAdd(b.div(b.lane, DenseTile::colLanes), four,
                               mainloop.warpRow)),
      getOperand(mainloop.tile.right, mainloop.operands.right.isInnerLast,
                 mainloop.tile.getWarpCols(), DenseTile::colLanes,
                 b.multiplyAdd(b.rem(b.lane, DenseTile::colLanes), four,
                               mainloop.warpCol)));
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Norms of blocks of a product, taken of its sums.

#include "BlockNorms.h"
#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Codegen/GPU/Core/GPUEvaluator.h"
#include "bsr/Codegen/GPU/Core/TensorCores.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

static constexpr int64_t floatBytes = 4;

std::optional<BlockNorms> BlockNorms::match(BlockScoresOp op) {
  if (!isLane(op.getBlockRows()) || !isLane(op.getBlockCols()))
    return std::nullopt;
  ArrayRef<int64_t> grid = op.getScores().getType().getShape();
  return BlockNorms{op.getNorm(), op.getBlockRows(), op.getBlockCols(), grid[0],
                    grid[1]};
}

void BlockNorms::storeSums(BlockBuilder &b, const WarpSums &warp,
                           int64_t pitch) const {
  const SumLayout &layout = warp.layout;
  // Neighbouring columns of a lane, and how far apart its next ones begin.
  int64_t length = layout.colsTogether;
  int64_t distance = length * layout.rowLanes;
  Value column =
      b.multiplyAdd(b.rem(b.lane, layout.rowLanes), length, warp.column);
  Value first =
      b.at(b.multiplyAdd(warp.at.front(), pitch, b.mul(column, floatBytes)));
  auto vector = VectorType::get(length, b.b.getF32Type());
  int64_t perRow = int64_t(warp.sums.size()) / warp.numRows;
  for (int64_t row = 0; row != warp.numRows; ++row) {
    for (int64_t i = 0; i != perRow; i += length) {
      int64_t offset =
          layout.getRow(row) * pitch + i / length * distance * floatBytes;
      Value sums = vector::FromElementsOp::create(
          b.b, b.loc, vector,
          ValueRange(warp.sums).slice(row * perRow + i, length));
      b.storeShared(sums, b.at(first, offset, b.b.getI8Type()),
                    length * floatBytes);
    }
  }
}

void BlockNorms::emit(BlockBuilder &b, int64_t rows, int64_t cols,
                      const WarpSums &sums, Value tileRow, Value tileCol,
                      Value output) const {
  int64_t pitch = getPitch(cols);
  b.barrier();
  storeSums(b, sums, pitch);
  b.barrier();

  int64_t elements = blockRows * blockCols;
  int64_t lanes = std::min(elements, BlockBuilder::warpThreads);
  int64_t groups = blockThreads / lanes;
  int64_t across = cols / blockCols, blocks = rows / blockRows * across;
  Value lane = b.rem(b.thread, lanes);
  GPUEvaluator e(b.b, b.loc);
  auto combine = [&](Value x, Value y) -> Value {
    if (norm == Norm::LInf)
      return arith::MaximumFOp::create(b.b, b.loc, x, y);
    return arith::AddFOp::create(b.b, b.loc, x, y);
  };
  auto takeBlock = [&](Value first) {
    return b.loop(
        b.constant(0), b.constant(elements), lanes,
        arith::ConstantOp::create(b.b, b.loc, b.b.getZeroAttr(b.b.getF32Type()))
            .getResult(),
        [&](Value element, ValueRange carried) {
          Value number = b.add(element, lane);
          Value at = b.multiplyAdd(
              b.div(number, blockCols), pitch,
              b.multiplyAdd(b.rem(number, blockCols), floatBytes, first));
          Value sum = b.load(b.at(at), b.b.getF32Type());
          return SmallVector<Value>{addToNorm(e, norm, carried[0], sum)};
        })[0];
  };
  // All lanes of a warp exchange what they have, of no block, too.
  b.loop(b.constant(0), b.constant(blocks), groups, {},
         [&](Value pass, ValueRange) {
           Value number = b.add(pass, b.div(b.thread, lanes));
           Value isThere = b.less(number, b.constant(blocks));
           number = b.rem(number, blocks);
           Value row = b.div(number, across), col = b.rem(number, across);
           Value first = b.multiplyAdd(row, blockRows * pitch,
                                       b.mul(col, blockCols * floatBytes));
           Value all = takeBlock(first);
           for (int64_t mask = 1; mask != lanes; mask *= 2)
             all = combine(all, b.exchange(all, mask));
           row = b.multiplyAdd(tileRow, rows / blockRows, row);
           col = b.multiplyAdd(tileCol, across, col);
           Value isInside = b.bitAnd(b.less(row, b.constant(gridRows)),
                                     b.less(col, b.constant(gridCols)));
           isInside = b.bitAnd(isInside, b.equal(lane, b.constant(0)));
           b.when(b.bitAnd(isThere, isInside), [&] {
             b.store(finishNorm(e, norm, all), output, {row, col});
           });
           return SmallVector<Value>();
         });
}

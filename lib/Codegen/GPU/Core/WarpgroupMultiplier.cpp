// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What multiplies by the tensor cores of a warpgroup.

#include "bsr/Codegen/GPU/Core/WarpgroupMultiplier.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

WarpgroupOperand WarpgroupMultiplier::getOperand(Side side,
                                                 ValueRange pointer) const {
  constexpr int64_t rowsTogether = 8;
  const Operand &operand = operands[side];
  return {pointer.front(), operand.width, operand.isTransposed,
          rowsTogether * operand.width, operand.leadingStride};
}

SmallVector<Value> WarpgroupMultiplier::multiply(ValueRange left,
                                                 ValueRange right,
                                                 ValueRange sums) const {
  return {multiplyAdd(b, shape.type, getOperand(Left, left),
                      getOperand(Right, right), shape.cols,
                      shape.depth / warpgroupDepth, sums.front())};
}

SmallVector<Value> WarpgroupMultiplier::fillRows(ValueRange starts) const {
  return {createSums(b, shape.cols, {starts[0], starts[1]})};
}

SmallVector<Value> WarpgroupMultiplier::unpack(ValueRange sums) const {
  SmallVector<Value> all;
  for (Value some : sums)
    llvm::append_range(all, unpackSums(b, some));
  return all;
}

SmallVector<Value> WarpgroupMultiplier::getRows(ValueRange sums) const {
  return grid(shape.cols).getRows(sums);
}

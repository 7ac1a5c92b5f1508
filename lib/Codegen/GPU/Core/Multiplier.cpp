// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What multiplies in a mainloop, and how the sums of a warp lie.

#include "bsr/Codegen/GPU/Core/Multiplier.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

SmallVector<Value> FragmentGrid::getRow(ValueRange sums, int64_t row) const {
  SmallVector<Value> result;
  for (int64_t col = 0; col != cols; ++col)
    llvm::append_range(result,
                       sums.slice(getSum(row / 2, col) + row % 2 * 2, 2));
  return result;
}

SmallVector<Value> FragmentGrid::getRows(ValueRange sums) const {
  SmallVector<Value> result;
  for (int64_t row = 0; row != getNumRows(); ++row)
    llvm::append_range(result, getRow(sums, row));
  return result;
}

SmallVector<Value> FragmentGrid::fillRows(ValueRange values) const {
  SmallVector<Value> sums;
  for (int64_t row = 0; row != rows; ++row)
    for (int64_t sum = 0; sum != cols * fragmentSums; ++sum)
      sums.push_back(values[2 * row + sum / 2 % 2]);
  return sums;
}

SmallVector<Value> WarpMultiplier::multiply(int64_t depth, Load left,
                                            Load right, Kept kept,
                                            ValueRange sums) const {
  // A unit has the rows of one fragment, or the columns of two.
  constexpr int64_t together = fragmentRows / fragmentCols;
  bool isLeftKept = kept == Kept::Left;
  int64_t numKept = isLeftKept ? rows : cols / together;
  int64_t numOthers = isLeftKept ? cols / together : rows;
  SmallVector<Value> next(sums);
  for (int64_t inner = 0; inner < depth; inner += fragmentRows) {
    SmallVector<SmallVector<Value, 8>> units;
    for (int64_t i = 0; i != numKept; ++i)
      units.push_back((isLeftKept ? left : right)(i * fragmentRows, inner));
    for (int64_t i = 0; i != numOthers; ++i) {
      SmallVector<Value, 8> other =
          (isLeftKept ? right : left)(i * fragmentRows, inner);
      for (int64_t j = 0; j != numKept; ++j)
        for (int64_t half = 0; half != together; ++half) {
          int64_t sum = getSum(isLeftKept ? j : i,
                               (isLeftKept ? i : j) * together + half);
          fragments.multiplyAdd(b, isLeftKept ? units[j] : other,
                                isLeftKept ? other : units[j], half,
                                MutableArrayRef(next).slice(sum, fragmentSums));
        }
    }
  }
  return next;
}

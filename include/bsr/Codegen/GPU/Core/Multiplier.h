// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What multiplies in a mainloop, and how the sums of a warp lie.

#ifndef BSR_CODEGEN_GPU_CORE_MULTIPLIER_H
#define BSR_CODEGEN_GPU_CORE_MULTIPLIER_H

#include "bsr/Codegen/GPU/Core/TensorCores.h"

namespace mlir::bsr::gpu {

/// The sums that a lane has of `rows` by `cols` fragments of 16x8, row by row:
/// of each fragment two neighbouring columns of a row, and of the row 8 below.
struct FragmentGrid {
  /// Sums of a fragment.
  static constexpr int64_t fragmentSums = 4;

  int64_t rows, cols;

  int64_t getSum(int64_t row, int64_t col) const {
    return (row * cols + col) * fragmentSums;
  }
  int64_t getNumSums() const { return getSum(rows, 0); }
  /// Rows of the lane, each of which is 8 below the one before.
  int64_t getNumRows() const { return 2 * rows; }
  /// The sums of a row of the lane, two of each fragment, and those of all.
  SmallVector<Value> getRow(ValueRange sums, int64_t row) const;
  SmallVector<Value> getRows(ValueRange sums) const;
  /// All sums, from those of each row, which are alike.
  SmallVector<Value> fillRows(ValueRange values) const;
};

/// Multiplies by the tensor cores of a warp (`mma.sync`).
class WarpMultiplier : public FragmentGrid {
public:
  WarpMultiplier(BlockBuilder &b, Type type, int64_t rows, int64_t cols)
      : FragmentGrid{rows, cols}, fragments(type), b(b) {}

  /// Loads a unit of 16x16 elements of an operand, which begins at a number of
  /// its own and an inner one.
  using Load =
      llvm::function_ref<SmallVector<Value, 8>(int64_t own, int64_t inner)>;
  /// The operand of which all units of 16 inner numbers are kept in registers,
  /// while those of the other one go by.
  enum class Kept { Left, Right };

  /// `sums` plus the product of operands of `depth` inner numbers.
  SmallVector<Value> multiply(int64_t depth, Load left, Load right, Kept kept,
                              ValueRange sums) const;

  const Fragments fragments;

private:
  BlockBuilder &b;
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_MULTIPLIER_H

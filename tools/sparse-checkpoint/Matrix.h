// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A matrix in blocks, as a checkpoint holds it.

#ifndef BSR_TOOLS_SPARSECHECKPOINT_MATRIX_H
#define BSR_TOOLS_SPARSECHECKPOINT_MATRIX_H

#include "step/Step.h"
#include <string>
#include <vector>

namespace sparse_opt {

/// A matrix of which some blocks are stored.
struct Matrix {
  Pattern pattern;                 // with the row view in its arrays
  std::vector<std::string> values; // the tensors whose slots are its blocks

  const std::vector<int32_t> &rowPtr() const { return pattern.arrays[0]; }
  const std::vector<int32_t> &colIdx() const { return pattern.arrays[1]; }
  const std::vector<int32_t> &slot() const { return pattern.arrays[2]; }
  int64_t blocks() const { return int64_t(colIdx().size()); }
  bsr_pattern_view view() const;

  /// Calls `visit(block row, block column, slot)` for each stored block.
  template <typename Visit>
  void forEachBlock(Visit visit) const {
    for (int64_t row = 0; row < pattern.gridRows(); ++row)
      for (int32_t k = rowPtr()[row]; k < rowPtr()[row + 1]; ++k)
        visit(row, int64_t(colIdx()[k]), int64_t(slot()[k]));
  }
};

/// Calls `visit(offset in the matrix, offset in the values, bytes)` for each
/// row of each block of `matrix`, whose elements have `elementBytes`.
template <typename Visit>
void forEachBlockLine(const Matrix &matrix, int64_t elementBytes, Visit visit) {
  const Pattern &pattern = matrix.pattern;
  int64_t bytes = pattern.blockCols * elementBytes;
  matrix.forEachBlock([&](int64_t row, int64_t col, int64_t slot) {
    for (int64_t r = 0; r < pattern.blockRows; ++r)
      visit(((row * pattern.blockRows + r) * pattern.cols +
             col * pattern.blockCols) *
                elementBytes,
            (slot * pattern.blockRows + r) * bytes, bytes);
  });
}

} // namespace sparse_opt

#endif // BSR_TOOLS_SPARSECHECKPOINT_MATRIX_H

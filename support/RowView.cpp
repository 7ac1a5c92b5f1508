// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Looks for what is wrong with a row view.

#include "RowView.h"

using namespace sparse_opt;

RowViewFault sparse_opt::findFault(int64_t rows, int64_t cols, int64_t blocks,
                                   const int32_t *rowPtr,
                                   const int32_t *colIdx) {
  if (rowPtr[0] != 0)
    return {RowViewFault::Start};
  for (int64_t r = 0; r < rows; ++r)
    if (rowPtr[r + 1] < rowPtr[r] || rowPtr[r + 1] > blocks)
      return {RowViewFault::Pointer, r, r + 1, rowPtr[r], blocks};
  if (rowPtr[rows] != blocks)
    return {RowViewFault::End, rows, rows, blocks, blocks};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = rowPtr[r]; k < rowPtr[r + 1]; ++k) {
      int64_t least = k == rowPtr[r] ? 0 : int64_t(colIdx[k - 1]) + 1;
      if (colIdx[k] < least || colIdx[k] >= cols)
        return {RowViewFault::Column, r, k, least, cols - 1};
    }
  return {};
}

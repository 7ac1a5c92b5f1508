// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What makes two arrays the row view of a pattern: the compiler and the runtime
// ask for the same.

#ifndef BSR_SUPPORT_ROWVIEW_H
#define BSR_SUPPORT_ROWVIEW_H

#include <cstdint>

namespace sparse_opt {

/// The first entry of a row view that breaks an invariant: pointers start at 0,
/// do not decrease and end in the number of blocks; block columns are in range,
/// sorted and unique in each block row.
struct RowViewFault {
  enum Kind {
    None,
    Start,   // the first of row_ptr is not 0
    Pointer, // an entry of row_ptr is not in [least, most]
    End,     // the last of row_ptr is not the number of blocks
    Column   // an entry of col_idx is not in [least, most]
  };

  Kind kind = None;
  int64_t row = 0;   // of blocks, of a column
  int64_t place = 0; // in the array
  int64_t least = 0, most = 0;
};

/// Looks for a fault of `blocks` blocks in a grid of `rows` x `cols`, whose
/// `rowPtr` has rows + 1 entries and whose `colIdx` has one a block.
RowViewFault findFault(int64_t rows, int64_t cols, int64_t blocks,
                       const int32_t *rowPtr, const int32_t *colIdx);

} // namespace sparse_opt

#endif // BSR_SUPPORT_ROWVIEW_H

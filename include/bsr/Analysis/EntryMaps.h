// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which entries of a matrix the entries of a tensor belong to, through
// element-wise operations, transposes, reshapes, slices and branches.

#ifndef BSR_ANALYSIS_ENTRYMAPS_H
#define BSR_ANALYSIS_ENTRYMAPS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// Entry `i` of a tensor belongs to entry `offset + sum(strides[k] * i[k])` of
/// a matrix, counted row by row, for all `i` of the box that begins at `starts`
/// and has the extents `sizes`. Other entries of the tensor do not belong to
/// the matrix.
struct Entries {
  int64_t offset = 0;
  SmallVector<int64_t> strides, starts, sizes;

  /// Those of a tensor of shape `shape` that is the matrix.
  static Entries getWhole(ArrayRef<int64_t> shape);
  bool operator==(const Entries &other) const {
    return offset == other.offset && strides == other.strides &&
           starts == other.starts && sizes == other.sizes;
  }
  /// True if the box of `other`, entries of the same tensor, has some of this.
  bool overlap(const Entries &other) const;
};

/// Whether entries of a result are functions of the operands' entries that
/// belong to the same entry of the matrix.
bool isEntryWise(Operation *op);

/// Visits the operands of entry-wise `op` of which entries belong to the
/// matrix, those of result number `result` being `entries`; of an operation
/// with branches, these are what the branches yield.
void visitOperands(Operation *op, unsigned result, const Entries &entries,
                   function_ref<void(OpOperand &, const Entries &)> visit);

/// The entries of result number `result` of an entry-wise operation that are
/// functions of those of `operand`, which are `entries`. One may be there
/// several times: in the result of a broadcast. Nothing if they are not known.
std::optional<Entries> followEntries(OpOperand &operand, unsigned result,
                                     const Entries &entries);

/// The part of a matrix that entries are: `rows` by `cols` of them from `row`
/// and `col` on.
struct Rectangle {
  int64_t row, col, rows, cols;
  /// The dimensions of the tensor in the order of the matrix: those along rows,
  /// then those along columns.
  SmallVector<int64_t> order;
  int64_t numRowDims;
  /// True if one of the dimensions runs along rows and columns.
  bool isFlat = false;
};

/// The rectangle of a matrix with `cols` columns that `entries` are, or nothing
/// if they are none.
std::optional<Rectangle> getRectangle(const Entries &entries, int64_t cols);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_ENTRYMAPS_H

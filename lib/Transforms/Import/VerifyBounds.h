// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks that operations of a step stay within their tensors.

#ifndef BSR_TRANSFORMS_IMPORT_VERIFYBOUNDS_H
#define BSR_TRANSFORMS_IMPORT_VERIFYBOUNDS_H

#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/Operation.h"

namespace mlir::bsr {

/// An index at which an operation begins to read or write a dimension of a
/// tensor.
struct BoundedIndex {
  /// The dimension, or that the index is the number of one.
  int64_t dim;
  static constexpr int64_t ofShape = -1;
  int64_t extent;
  /// From the first entry to the last.
  int64_t way;
  OpFoldResult index;
  /// Of the operation, if `index` is a value.
  unsigned operand;

  /// The least and the largest index with which the operation stays within the
  /// dimension; not in this order if there is none.
  int64_t low() const { return std::max<int64_t>(-way, 0); }
  int64_t high() const { return extent - 1 - std::max<int64_t>(way, 0); }
};

/// The indices of `op`, if it reads or writes parts of tensors.
SmallVector<BoundedIndex> getBoundedIndices(Operation *op);

/// Checks that `op` reads and writes within its tensors, as far as constants
/// tell: upstream's verifiers look at some of the operations, and at attributes
/// only, not at constants that are operands. Other indices are for
/// `bsr-clamp-indices`.
LogicalResult verifyBounds(Operation *op);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_IMPORT_VERIFYBOUNDS_H

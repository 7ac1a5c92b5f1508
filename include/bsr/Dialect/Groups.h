// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of rows with the matrix of the group that each row is in.

#ifndef BSR_DIALECT_GROUPS_H
#define BSR_DIALECT_GROUPS_H

#include "bsr/Dialect/BSR.h"

#define GET_OP_CLASSES
#include "bsr/Dialect/BSRGroups.h.inc"

namespace mlir::bsr {

/// What a front end says of a private function whose body, of operations of
/// upstream, computes an operation of groups (`bsr.grouped`):
///
/// - `matmul`, `matmul_transposed`: `bsr.grouped_matmul` of its arguments `x`,
///   `w` and `groups`, without or with `transpose`.
/// - `outer`: `bsr.grouped_outer` of its arguments `a`, `b` and `groups`; a
///   fourth one, `w`, is the matrices whose gradient it is.
///
/// The result may be rounded to floats of fewer bits.
struct GroupedFunction {
  static constexpr StringLiteral matmul = "matmul";
  static constexpr StringLiteral transposed = "matmul_transposed";
  static constexpr StringLiteral outer = "outer";

  /// Whether `attr` is one of these.
  static bool isValid(Attribute attr);
};

} // namespace mlir::bsr

#endif // BSR_DIALECT_GROUPS_H

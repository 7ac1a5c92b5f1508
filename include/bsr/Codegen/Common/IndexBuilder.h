// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Positions of kernels in loops and tensors, and their arithmetic.

#ifndef BSR_CODEGEN_COMMON_INDEXBUILDER_H
#define BSR_CODEGEN_COMMON_INDEXBUILDER_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Builders.h"

namespace mlir::bsr {

/// A position along one dimension: `base + offset`, and, if `lanes`, one more
/// for each lane of a vector. `align` divides `base + offset`.
struct Index {
  Value base;
  int64_t offset = 0;
  bool lanes = false;
  int64_t align = 1;

  static Index constant(int64_t offset);
  static Index of(Value base, bool lanes = false, int64_t align = 1) {
    return {base, 0, lanes, align};
  }
  /// The same position without the lanes.
  Index scalar() const { return {base, offset, false, align}; }
  Index plus(int64_t more) const;
  bool isConstant() const { return !base && !lanes; }
  bool operator==(const Index &other) const {
    return base == other.base && offset == other.offset && lanes == other.lanes;
  }
};

/// The loops of `op` at the point `at` of its result number `result`.
SmallVector<Index> getLoops(linalg::GenericOp op, unsigned result,
                            ArrayRef<Index> at);
/// The results of `map` (dimensions and constants) at the point `loops`.
SmallVector<Index> applyMap(AffineMap map, ArrayRef<Index> loops);

/// Builds the arithmetic of positions, and folds what is known of them.
class IndexBuilder {
public:
  IndexBuilder(OpBuilder &builder, Location loc) : b(builder), loc(loc) {}

  OpBuilder &b;
  Location loc;

  Value constant(int64_t value);
  /// `base + offset` as a value; lanes are ignored.
  Value materialize(Index index);
  Index multiplyAdd(Index a, int64_t factor, Index b);
  /// `a * extent + b`, for `b` in `[0, extent)`; nothing if lanes would not be
  /// adjacent.
  std::optional<Index> linearize(Index a, int64_t extent, Index b);
  /// `index` as `first * extent + second`, with `second` below `extent`.
  std::pair<Index, Index> split(Index index, int64_t extent);
  /// True at run time if all of `indices` are 0; null if all are constants.
  Value areZero(ArrayRef<Index> indices);

private:
  /// `value` as `first * divisor + second`, by the form of what computes it:
  /// `second` may be larger than `divisor`, but has a bound.
  std::optional<std::pair<Index, Index>> divide(Value value, int64_t divisor);
};

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_INDEXBUILDER_H

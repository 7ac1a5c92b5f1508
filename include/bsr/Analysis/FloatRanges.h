// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is known of floating-point numbers from how they are computed.

#ifndef BSR_ANALYSIS_FLOATRANGES_H
#define BSR_ANALYSIS_FLOATRANGES_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include <limits>

namespace mlir::bsr {

/// Where numbers lie: in [low, high], or NaN if `mayBeNaN`.
struct FloatRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool mayBeNaN = true;

  static FloatRange constant(double value) { return {value, value, false}; }
  /// True for 0, and for NaN if it may be: 0 times anything.
  bool isZeroOrNaN() const { return low == 0 && high == 0; }
  bool isZero() const { return isZeroOrNaN() && !mayBeNaN; }
  bool isFinite() const;
};

/// The intervals of the values of a step: of scalars, and of all entries of
/// tensors. Looks through element-wise operations. Each is computed once.
class FloatRanges {
public:
  FloatRange get(Value value);
  /// Forgets the results of `op`, which is erased.
  void erase(Operation *op);

private:
  void compute(Operation *op);
  void computeResults(linalg::LinalgOp op);
  FloatRange getKnown(Value value) const { return known.lookup(value); }
  bool isKnown(Value value) const;

  DenseMap<Value, FloatRange> known;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_FLOATRANGES_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is known of floating-point numbers from how they are computed.

#ifndef BSR_LIB_TRANSFORMS_INTERVALS_H
#define BSR_LIB_TRANSFORMS_INTERVALS_H

#include "mlir/IR/Value.h"
#include <limits>

namespace mlir::bsr {

/// Where numbers lie: in [low, high], or NaN if `mayBeNaN`.
struct Interval {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool mayBeNaN = true;

  static Interval constant(double value) { return {value, value, false}; }
  /// True for 0, and for NaN if it may be: 0 times anything.
  bool isZeroOrNaN() const { return low == 0 && high == 0; }
  bool isZero() const { return isZeroOrNaN() && !mayBeNaN; }
  bool isFinite() const;
};

/// The interval of `value`: a scalar, or all entries of a tensor. Looks through
/// element-wise operations.
Interval getInterval(Value value);

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_INTERVALS_H

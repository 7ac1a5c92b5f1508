// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How large indices get.

#ifndef BSR_ANALYSIS_BOUNDS_H
#define BSR_ANALYSIS_BOUNDS_H

#include "mlir/IR/Value.h"
#include <optional>

namespace mlir::bsr {

/// The largest value of an index made of sums, products and loops, all of them
/// of numbers that are not negative.
std::optional<int64_t> getLargest(Value value);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_BOUNDS_H

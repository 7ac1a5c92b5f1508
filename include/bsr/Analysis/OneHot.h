// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds matrices that choose rows of what they are multiplied with.

#ifndef BSR_ANALYSIS_ONEHOT_H
#define BSR_ANALYSIS_ONEHOT_H

#include "mlir/IR/Value.h"

namespace mlir::bsr {

/// A matrix that is 1 where its dimension `dim` is the index of the others.
struct OneHot {
  Value indices;
  unsigned dim;
};

/// Matches `select(index(dim) == in, 1, 0)` over all dimensions, with `in` of
/// all dimensions but `dim`, in order.
std::optional<OneHot> matchOneHot(Value value);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_ONEHOT_H

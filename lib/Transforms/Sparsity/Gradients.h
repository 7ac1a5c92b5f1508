// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the gradients of block-sparse weights in a step, and masks them.

#ifndef BSR_TRANSFORMS_SPARSITY_GRADIENTS_H
#define BSR_TRANSFORMS_SPARSITY_GRADIENTS_H

#include "bsr/Gradients/GradientFinder.h"

namespace mlir::bsr {

/// Masks the gradients of `weights` wherever something sees their entries off
/// the pattern, as the description of `bsr-bind` says. Calls `report` with the
/// operation and what it does for each gradient not found for sure. Returns the
/// number of weights with a gradient that was masked.
unsigned maskGradients(
    func::FuncOp func, ArrayRef<BoundWeight> weights,
    function_ref<void(const BoundWeight &, Operation *, StringRef)> report);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_SPARSITY_GRADIENTS_H

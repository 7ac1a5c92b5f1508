// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients that the program itself says are some.

#ifndef BSR_GRADIENTS_GRADIENTMARKS_H
#define BSR_GRADIENTS_GRADIENTMARKS_H

#include "bsr/Gradients/WeightUses.h"

namespace mlir::bsr {

/// What a `bsr.gradient` says: `output` is the gradient of a function at `at`,
/// as its readers see it; `gradient` is the value that it is computed as, of
/// which other values may be computed, too.
struct GradientMark {
  Value output, gradient, at;
};

/// Replaces each `bsr.gradient` of `func` by an element-wise operation that
/// copies, and returns them in the order of the program.
SmallVector<GradientMark> takeGradientMarks(func::FuncOp func);

/// Drops the copies.
void dropGradientMarks(ArrayRef<GradientMark> marks);

/// The marked gradients at a weight, or at an entry-wise function of it and of
/// these gradients, without data in it. Not sure is one of which entries are
/// not known, or at a function that is not zero where the weight is.
SmallVector<HiddenGradient> findMarked(ArrayRef<GradientMark> marks,
                                       const BoundWeight &weight,
                                       const StepData &data,
                                       const Spaces &spaces);

} // namespace mlir::bsr

#endif // BSR_GRADIENTS_GRADIENTMARKS_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is known of slices.

#ifndef BSR_LIB_TRANSFORMS_SLICES_H
#define BSR_LIB_TRANSFORMS_SLICES_H

#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace mlir::bsr {

/// Whether a slice is known and has no gaps.
bool isStatic(OffsetSizeAndStrideOpInterface slice);

/// Adds the patterns of `bsr-forward-slices`.
void populateForwardSlicesPatterns(RewritePatternSet &patterns);

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_SLICES_H

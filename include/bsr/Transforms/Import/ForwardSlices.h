// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The patterns of `bsr-forward-slices`, for passes that make slices.

#ifndef BSR_TRANSFORMS_IMPORT_FORWARDSLICES_H
#define BSR_TRANSFORMS_IMPORT_FORWARDSLICES_H

#include "mlir/IR/PatternMatch.h"

namespace mlir::bsr {

/// Adds the patterns of `bsr-forward-slices`.
void populateForwardSlicesPatterns(RewritePatternSet &patterns);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_IMPORT_FORWARDSLICES_H

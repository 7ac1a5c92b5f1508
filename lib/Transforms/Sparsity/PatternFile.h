// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Patterns in files, as the runtime writes them.

#ifndef BSR_TRANSFORMS_SPARSITY_PATTERNFILE_H
#define BSR_TRANSFORMS_SPARSITY_PATTERNFILE_H

#include "bsr/Dialect/BSR.h"

namespace mlir::bsr {

/// The row view of a static pattern: its blocks are its slots.
struct StaticPattern {
  PatternType type;
  SmallVector<int32_t> rowPtr, colIdx;
};

/// Reads the pattern file `path` and checks every invariant of what it holds.
/// Says what is wrong through `emitError`.
FailureOr<StaticPattern>
readPatternFile(MLIRContext *context, StringRef path,
                function_ref<InFlightDiagnostic()> emitError);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_SPARSITY_PATTERNFILE_H

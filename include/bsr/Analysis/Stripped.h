// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors without what only reorders, reshapes or rounds them.

#ifndef BSR_ANALYSIS_STRIPPED_H
#define BSR_ANALYSIS_STRIPPED_H

#include "mlir/IR/Value.h"

namespace mlir::bsr {

/// A tensor without what only reorders, reshapes or rounds it; `dims[i]` is its
/// dimension that dimension `i` is, or -1.
struct Stripped {
  Value value;
  SmallVector<int64_t> dims;
};

Stripped strip(Value value);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_STRIPPED_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many bytes are live when.

#ifndef BSR_ANALYSIS_LIVERANGES_H
#define BSR_ANALYSIS_LIVERANGES_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/ArrayRef.h"

namespace mlir::bsr {

/// The bytes of a tensor of static shape; 0 for everything else.
int64_t getTensorBytes(Value value);

/// Bytes that are live from one position to another, both included.
struct LiveRange {
  int64_t begin, end, bytes;
};

/// The first position at which most bytes are live, and how many: no memory for
/// all of them can be smaller.
struct Peak {
  int64_t at = 0, bytes = 0;
};
Peak findPeak(ArrayRef<LiveRange> ranges);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_LIVERANGES_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many bytes are live when.

#include "bsr/Analysis/LiveRanges.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;
using namespace mlir::bsr;

Peak bsr::findPeak(ArrayRef<LiveRange> ranges) {
  SmallVector<std::pair<int64_t, int64_t>> changes;
  for (const LiveRange &range : ranges) {
    changes.emplace_back(range.begin, range.bytes);
    changes.emplace_back(range.end + 1, -range.bytes);
  }
  // What ends at a position ends before what begins there.
  llvm::sort(changes);
  Peak peak;
  int64_t live = 0;
  for (auto [at, change] : changes) {
    live += change;
    if (live > peak.bytes)
      peak = {at, live};
  }
  return peak;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many bytes are live when.

#include "bsr/Analysis/LiveRanges.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::bsr;

int64_t bsr::getTensorBytes(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.hasStaticShape() || !type.getElementType().isIntOrFloat())
    return 0;
  return type.getNumElements() *
         llvm::divideCeil(type.getElementTypeBitWidth(), 8);
}

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

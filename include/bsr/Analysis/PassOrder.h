// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which pass has to run before which.

#ifndef BSR_ANALYSIS_PASSORDER_H
#define BSR_ANALYSIS_PASSORDER_H

#include "mlir/IR/Operation.h"

namespace mlir::bsr {

/// Fails with an error at the first operation of type `OpTy` in `root`: pass
/// `first` leaves none of them, and pass `then` has to run after it.
template <typename OpTy>
LogicalResult requireBefore(StringRef first, StringRef then, Operation *root) {
  WalkResult result = root->walk([&](OpTy op) {
    op->emitError("expected ")
        << first << " before " << then << ", but got '" << op->getName() << "'";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_PASSORDER_H

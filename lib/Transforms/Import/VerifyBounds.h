// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks that operations of a step stay within their tensors.

#ifndef BSR_TRANSFORMS_IMPORT_VERIFYBOUNDS_H
#define BSR_TRANSFORMS_IMPORT_VERIFYBOUNDS_H

#include "mlir/IR/Operation.h"

namespace mlir::bsr {

/// Checks that `op` reads and writes within its tensors, as far as constants
/// tell: upstream's verifiers look at some of the operations, and at attributes
/// only, not at constants that are operands.
LogicalResult verifyBounds(Operation *op);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_IMPORT_VERIFYBOUNDS_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The plainest target: one element after the other.

#ifndef BSR_CODEGEN_SCALAR_SCALARTARGET_H
#define BSR_CODEGEN_SCALAR_SCALARTARGET_H

#include "mlir/IR/DialectRegistry.h"

namespace mlir::bsr {

/// Implements what passes ask of a target for `#bsr.scalar`.
void registerScalarTargetExternalModels(DialectRegistry &registry);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_SCALAR_SCALARTARGET_H

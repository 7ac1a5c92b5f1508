// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GPUs.

#ifndef BSR_CODEGEN_GPU_GPUTARGET_H
#define BSR_CODEGEN_GPU_GPUTARGET_H

#include "mlir/IR/DialectRegistry.h"

namespace mlir::bsr {

/// Implements what passes ask of a target for `#bsr.gpu`.
void registerGPUTargetExternalModels(DialectRegistry &registry);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_GPU_GPUTARGET_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What passes ask of a target, answered for `#bsr.cpu`.

#ifndef BSR_CODEGEN_CPU_CPUDISPATCH_H
#define BSR_CODEGEN_CPU_CPUDISPATCH_H

#include "bsr/Dialect/BSR.h"

namespace mlir::bsr {

/// Implements the two interfaces of a target for `#bsr.cpu`.
void registerCPUTargetExternalModels(DialectRegistry &registry);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_CPU_CPUDISPATCH_H

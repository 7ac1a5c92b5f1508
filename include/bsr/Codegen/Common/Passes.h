// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels of every target are checked and lowered by.

#ifndef BSR_CODEGEN_COMMON_PASSES_H
#define BSR_CODEGEN_COMMON_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Codegen/Common/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Codegen/Common/Passes.h.inc"

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_PASSES_H

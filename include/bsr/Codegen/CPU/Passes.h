// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clusters become kernels of vectors, kernels parallel loops.

#ifndef BSR_CODEGEN_CPU_PASSES_H
#define BSR_CODEGEN_CPU_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Codegen/CPU/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Codegen/CPU/Passes.h.inc"

} // namespace mlir::bsr

#endif // BSR_CODEGEN_CPU_PASSES_H

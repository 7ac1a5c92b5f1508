// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels become functions of a GPU, and launches of them.

#ifndef BSR_CODEGEN_GPU_PASSES_H
#define BSR_CODEGEN_GPU_PASSES_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Codegen/GPU/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Codegen/GPU/Passes.h.inc"

} // namespace mlir::bsr

#endif // BSR_CODEGEN_GPU_PASSES_H

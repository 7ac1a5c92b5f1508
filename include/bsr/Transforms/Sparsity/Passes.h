// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Marked weights become patterns and values, dense products sparse ones.

#ifndef BSR_TRANSFORMS_SPARSITY_PASSES_H
#define BSR_TRANSFORMS_SPARSITY_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Transforms/Sparsity/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Transforms/Sparsity/Passes.h.inc"

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_SPARSITY_PASSES_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products and the softmax between them become attention.

#ifndef BSR_TRANSFORMS_ATTENTION_PASSES_H
#define BSR_TRANSFORMS_ATTENTION_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Transforms/Attention/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Transforms/Attention/Passes.h.inc"

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_ATTENTION_PASSES_H

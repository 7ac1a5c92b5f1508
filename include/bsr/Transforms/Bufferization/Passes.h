// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors become buffers: carried state is updated where it lies, everything
// else lies in one arena.

#ifndef BSR_TRANSFORMS_BUFFERIZATION_PASSES_H
#define BSR_TRANSFORMS_BUFFERIZATION_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Transforms/Bufferization/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Transforms/Bufferization/Passes.h.inc"

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_BUFFERIZATION_PASSES_H

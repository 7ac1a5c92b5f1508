// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface of a compiled step to the runtime.

#ifndef BSR_TRANSFORMS_LIBRARY_PASSES_H
#define BSR_TRANSFORMS_LIBRARY_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Transforms/Library/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Transforms/Library/Passes.h.inc"

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_LIBRARY_PASSES_H

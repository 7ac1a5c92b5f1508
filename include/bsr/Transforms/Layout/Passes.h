// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Vectors will run along tokens.

#ifndef BSR_TRANSFORMS_LAYOUT_PASSES_H
#define BSR_TRANSFORMS_LAYOUT_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Transforms/Layout/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Transforms/Layout/Passes.h.inc"

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_LAYOUT_PASSES_H

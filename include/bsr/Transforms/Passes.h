// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes and pipelines of the project.

#ifndef BSR_TRANSFORMS_PASSES_H
#define BSR_TRANSFORMS_PASSES_H

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassOptions.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Transforms/Passes.h.inc"

/// Registers the named pipelines.
void registerBSRPipelines();

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_PASSES_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step becomes one of several processes that train together.

#ifndef BSR_TRANSFORMS_PARALLEL_PASSES_H
#define BSR_TRANSFORMS_PARALLEL_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Transforms/Parallel/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Transforms/Parallel/Passes.h.inc"

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_PARALLEL_PASSES_H

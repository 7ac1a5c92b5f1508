// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations become clusters, one function per structure.

#ifndef BSR_TRANSFORMS_CLUSTERS_PASSES_H
#define BSR_TRANSFORMS_CLUSTERS_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Transforms/Clusters/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Transforms/Clusters/Passes.h.inc"

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_CLUSTERS_PASSES_H

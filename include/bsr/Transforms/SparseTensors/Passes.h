// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// To MLIR's own sparse tensors and back.

#ifndef BSR_TRANSFORMS_SPARSETENSORS_PASSES_H
#define BSR_TRANSFORMS_SPARSETENSORS_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Transforms/SparseTensors/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Transforms/SparseTensors/Passes.h.inc"

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_SPARSETENSORS_PASSES_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the importers leave becomes one function without loops, every marked
// weight a matrix.

#ifndef BSR_TRANSFORMS_IMPORT_PASSES_H
#define BSR_TRANSFORMS_IMPORT_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

#define GEN_PASS_DECL
#include "bsr/Transforms/Import/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bsr/Transforms/Import/Passes.h.inc"

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_IMPORT_PASSES_H

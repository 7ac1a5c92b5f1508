// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for gradients of images by those of their windows.

#ifndef BSR_LIB_CODEGEN_CPU_SUMMEDWINDOWS_H
#define BSR_LIB_CODEGEN_CPU_SUMMEDWINDOWS_H

#include "bsr/Analysis/Windows.h"
#include "bsr/Codegen/CPU/Emitter.h"
#include "bsr/Codegen/Common/Blocks.h"

namespace mlir::bsr::cpu {

/// Emits `sum`, which adds up windows that a product makes, and the product,
/// into `output`.
void emitSummedWindows(Emitter &e, Operation *sum, Value output,
                       const PatternViews &patterns);

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_SUMMEDWINDOWS_H

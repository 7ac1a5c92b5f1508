// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels for look-ups of rows by index and their gradients.

#ifndef BSR_CODEGEN_CPU_ROWKERNELS_H
#define BSR_CODEGEN_CPU_ROWKERNELS_H

#include "bsr/Codegen/CPU/Emitter.h"
#include "bsr/Codegen/Common/Blocks.h"

namespace mlir::bsr::cpu {

/// The memory for the lists of tokens that `root` goes through, if it sums rows
/// by index.
SmallVector<MemRefType> getLinkMemory(Operation *root);

/// Emits `root` into `output` if it looks rows up by index, or sums them;
/// `scratch` is of `getLinkMemory`. False, and nothing emitted, if not.
bool emitRows(Emitter &e, Operation *root, Value output,
              const PatternViews &patterns, ValueRange scratch);

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_ROWKERNELS_H

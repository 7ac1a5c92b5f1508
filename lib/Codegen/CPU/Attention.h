// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels for attention and its gradient.

#ifndef BSR_CODEGEN_CPU_ATTENTION_H
#define BSR_CODEGEN_CPU_ATTENTION_H

#include "bsr/Codegen/CPU/Emitter.h"
#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Dialect/Attention.h"

namespace mlir::bsr::cpu {

/// The memory that the kernel of `attention` needs for itself: of a gradient,
/// sums of the gradient of the queries.
SmallVector<MemRefType> getAttentionScratch(const Attention &attention,
                                            CPUTarget target);

/// Emits the loops of `attention`. `outputs` has a buffer for each result that
/// is stored, `scratch` the memory of `getAttentionScratch`.
void emitAttention(Emitter &e, const Attention &attention,
                   const DenseMap<Value, Value> &outputs,
                   const PatternViews &patterns, ValueRange scratch);

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_ATTENTION_H

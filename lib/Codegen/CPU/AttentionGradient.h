// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.attention_grad.

#ifndef BSR_CODEGEN_CPU_ATTENTIONGRADIENT_H
#define BSR_CODEGEN_CPU_ATTENTIONGRADIENT_H

#include "Attention.h"

namespace mlir::bsr {

/// Memory for the sums of the gradient of all queries.
MemRefType getGradientScratch(const Attention &attention, CPUTarget target);

/// Emits the gradient `attention`; `querySums` is of the type of
/// `getGradientScratch`.
void emitAttentionGradient(Emitter &e, const Attention &attention,
                           const DenseMap<Value, Value> &outputs,
                           const PatternViews &patterns, Value querySums);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_CPU_ATTENTIONGRADIENT_H

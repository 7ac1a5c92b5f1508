// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.attention_grad.

#ifndef BSR_CODEGEN_CPU_ATTENTIONGRADIENT_H
#define BSR_CODEGEN_CPU_ATTENTIONGRADIENT_H

#include "bsr/Codegen/CPU/Emitter.h"
#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Dialect/Attention.h"

namespace mlir::bsr::cpu {

/// Memory for the sums of the gradient of all queries, where they can't be
/// taken where it lies.
SmallVector<MemRefType> getGradientScratch(const Attention &attention,
                                           CPUTarget target);

/// Emits the gradient `attention`; `scratch` is of the types of
/// `getGradientScratch`.
void emitAttentionGradient(Emitter &e, const Attention &attention,
                           const DenseMap<Value, Value> &outputs,
                           const PatternViews &patterns, ValueRange scratch);

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_ATTENTIONGRADIENT_H

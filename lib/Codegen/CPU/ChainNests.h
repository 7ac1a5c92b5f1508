// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for chains of element-wise operations and reductions.

#ifndef BSR_LIB_CODEGEN_CPU_CHAINNESTS_H
#define BSR_LIB_CODEGEN_CPU_CHAINNESTS_H

#include "bsr/Analysis/Chain.h"
#include "bsr/Codegen/CPU/Kernels.h"

namespace mlir::bsr::cpu {

/// The types of the buffers that the totals of `chain` and its product need.
SmallVector<MemRefType> getScratch(const Chain &chain, CPUTarget target);

/// Emits the work items of `chain` into the buffers `outputs`, and its totals
/// after them, by way of `scratch`.
void emitChain(Emitter &emitter, const Chain &chain,
               const DenseMap<Value, Value> &outputs,
               const PatternViews &patterns, ValueRange scratch);

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_CHAINNESTS_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for products of single weights, in an order of their own.

#ifndef BSR_LIB_CODEGEN_CPU_SINGLESPMM_H
#define BSR_LIB_CODEGEN_CPU_SINGLESPMM_H

#include "SparseKernels.h"

namespace mlir::bsr::cpu {

/// The memory that the kernel of `product` puts single weights, or the values
/// of blocks of one row or column, in order in; none if it is no product that
/// does so.
SmallVector<MemRefType> getOrderMemory(Operation *product, CPUTarget target);

/// Emits `product`, which takes `scratch` of `getOrderMemory`, into `output`.
void emitOrdered(Emitter &e, Operation *product, Value output,
                 const PatternViews &patterns, ValueRange scratch);
/// Emits `op`, which takes `scratch` of `getOrderMemory`, into `output`.
void emitOrderedSpMM(Emitter &e, SpMMOp op, Value output,
                     const PatternViews &patterns, ValueRange scratch,
                     Epilogue epilogue = {});
void emitOrderedSDDMM(Emitter &e, SDDMMOp op, Value output,
                      const PatternViews &patterns, ValueRange scratch);

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_SINGLESPMM_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a step computes for each micro-batch anew.

#ifndef BSR_LIB_TRANSFORMS_PARALLEL_DIFFERING_H
#define BSR_LIB_TRANSFORMS_PARALLEL_DIFFERING_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

namespace mlir::bsr {

/// Calls `visit` for what `op` reads, in bodies, too.
void visitAllReads(Operation *op, function_ref<void(Value)> visit);

/// True if argument `arg` of `step` is the same on all processes.
bool isSame(func::FuncOp step, unsigned arg);

/// True if each micro-batch has its own argument `arg` of `step`.
bool isOfMicroBatch(func::FuncOp step, unsigned arg);

/// The values of the body of `step` that follow from arguments of a micro-batch
/// by other ways than means (`bsr.all_reduce`) and what is received once.
DenseSet<Value> findDiffering(func::FuncOp step);

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_PARALLEL_DIFFERING_H

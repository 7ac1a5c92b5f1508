// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions that many threads share.

#ifndef BSR_LIB_CODEGEN_GPU_REDUCTIONS_H
#define BSR_LIB_CODEGEN_GPU_REDUCTIONS_H

#include "bsr/Codegen/Common/KernelTarget.h"

namespace mlir::bsr {

/// The memory that `emitReduction` needs for the operations of a cluster, in
/// their order: parts of sums that several blocks of threads share.
SmallVector<MemRefType> getReductionScratch(const ClusterPlan &plan);

/// Emits `op` into `outputs`, if it is a reduction that several threads should
/// share, as launches; takes of `scratch` what `getReductionScratch` says. The
/// same bits come out from run to run: who takes which terms, and in which
/// order they are combined, is fixed.
bool emitReduction(Evaluator &evaluator, Operation *op,
                   const DenseMap<Value, Value> &outputs,
                   const PatternViews &patterns, ValueRange &scratch);

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_REDUCTIONS_H

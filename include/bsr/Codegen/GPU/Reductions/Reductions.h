// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions that many threads share.

#ifndef BSR_CODEGEN_GPU_REDUCTIONS_REDUCTIONS_H
#define BSR_CODEGEN_GPU_REDUCTIONS_REDUCTIONS_H

#include "bsr/Codegen/Common/KernelTarget.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::bsr::gpu {

/// The memory that `emitReduction` needs for `op`: partial sums that several
/// thread blocks share.
SmallVector<MemRefType> getReductionScratch(Operation *op);

/// Emits `op` into `outputs`, if it is a reduction that several threads should
/// share, as launches; `scratch` is what `getReductionScratch` says. The
/// same bits come out from run to run: which thread takes which terms, and in
/// which order they are combined, is fixed.
bool emitReduction(Evaluator &evaluator, Operation *op,
                   const DenseMap<Value, Value> &outputs,
                   const PatternViews &patterns, ValueRange scratch);

/// Emits the launch that adds, in order, the partial sums of the results of
/// `root`, a total of `chain`: those of result i are `partials[i]`, of shape
/// `[count, rows]`, where the rows are those of `root`, merged.
void emitSumOfPartials(Evaluator &evaluator, const Chain &chain,
                       const Chain::Root &root, ValueRange partials,
                       const DenseMap<Value, Value> &outputs);

/// `value` of the lane that is `distance` from this one, as `mode` has it.
Value shuffle(Evaluator &evaluator, Value value, int64_t distance,
              mlir::gpu::ShuffleMode mode);

/// `number` as the indices of loops of `extents`.
SmallVector<Index> splitAll(Evaluator &evaluator, Index number,
                            ArrayRef<int64_t> extents);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_REDUCTIONS_REDUCTIONS_H

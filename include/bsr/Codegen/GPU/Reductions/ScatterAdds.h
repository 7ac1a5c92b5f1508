// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of rows by index.

#ifndef BSR_CODEGEN_GPU_REDUCTIONS_SCATTERADDS_H
#define BSR_CODEGEN_GPU_REDUCTIONS_SCATTERADDS_H

#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Dialect/BSR.h"

namespace mlir::bsr::gpu {

/// The memory that the first launch of `root` leaves to the next, if it sums
/// rows by index; else nothing.
SmallVector<MemRefType> getRowScratch(Operation *root);

/// Emits `root` into `output` as two launches if it sums rows by index: of all
/// rows, a thread block each; of the stored blocks, or their norms, a
/// thread for each number. `scratch` is of `getRowScratch`. False, and nothing
/// emitted, if it does not.
bool emitRowSums(Evaluator &evaluator, Operation *root, Value output,
                 const PatternViews &patterns, ValueRange scratch);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_REDUCTIONS_SCATTERADDS_H

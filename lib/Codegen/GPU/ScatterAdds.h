// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of rows by index.

#ifndef BSR_LIB_CODEGEN_GPU_SCATTERADDS_H
#define BSR_LIB_CODEGEN_GPU_SCATTERADDS_H

#include "bsr/Codegen/Common/Evaluator.h"
#include "bsr/Dialect/BSR.h"

namespace mlir::bsr {

/// The memory that one launch of `op` leaves to the next.
SmallVector<MemRefType> getScatterScratch(ScatterAddOp op);

/// Emits `op` into `output` as two launches, the second with a block of threads
/// for each row; `scratch` is of `getScatterScratch`.
void emitScatterAdd(Evaluator &evaluator, ScatterAddOp op, Value output,
                    ValueRange scratch);

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_SCATTERADDS_H

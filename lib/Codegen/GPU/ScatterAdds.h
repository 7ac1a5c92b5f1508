// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of rows by index.

#ifndef BSR_LIB_CODEGEN_GPU_SCATTERADDS_H
#define BSR_LIB_CODEGEN_GPU_SCATTERADDS_H

#include "bsr/Codegen/Common/Evaluator.h"
#include "bsr/Dialect/BSR.h"

namespace mlir::bsr {

/// Emits `op` into `output` as a launch with a block of threads for each row.
void emitScatterAdd(Evaluator &evaluator, ScatterAddOp op, Value output);

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_SCATTERADDS_H

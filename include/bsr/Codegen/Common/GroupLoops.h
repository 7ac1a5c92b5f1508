// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain loops for products of rows with the matrices of their groups.

#ifndef BSR_CODEGEN_COMMON_GROUPLOOPS_H
#define BSR_CODEGEN_COMMON_GROUPLOOPS_H

#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Dialect/Groups.h"

namespace mlir::bsr {

/// Emits `op` into `output`: an element of the result is one point's.
void emitGroupedMatmul(Evaluator &e, GroupedMatmulOp op, Value output);
void emitGroupedOuter(Evaluator &e, GroupedOuterOp op, Value output);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_GROUPLOOPS_H

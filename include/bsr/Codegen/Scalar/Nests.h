// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain loops: one element after the other.

#ifndef BSR_CODEGEN_SCALAR_NESTS_H
#define BSR_CODEGEN_SCALAR_NESTS_H

#include "bsr/Codegen/Common/Blocks.h"

namespace mlir::bsr {

/// Emits the loops that compute `op`, a `linalg.generic` or an operation of the
/// dialect, into the buffers `outputs`; a result without one is not stored.
/// `patterns` has the line view (`getLineView`) of its pattern.
void emitLoops(Evaluator &evaluator, Operation *op,
               const DenseMap<Value, Value> &outputs,
               const PatternViews &patterns);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_SCALAR_NESTS_H

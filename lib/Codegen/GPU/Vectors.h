// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element-wise operations of which a thread takes several elements.

#ifndef BSR_LIB_CODEGEN_GPU_VECTORS_H
#define BSR_LIB_CODEGEN_GPU_VECTORS_H

#include "bsr/Codegen/Common/Evaluator.h"

namespace mlir::bsr {

/// Emits `op` into `outputs`, if it is element-wise and threads can take
/// vectors of up to 16 bytes of its results, which lie side by side.
bool emitVectors(Evaluator &evaluator, Operation *op,
                 const DenseMap<Value, Value> &outputs);

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_VECTORS_H

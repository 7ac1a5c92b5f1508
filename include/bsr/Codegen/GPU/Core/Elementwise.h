// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element-wise operations of which a thread takes several elements.

#ifndef BSR_CODEGEN_GPU_CORE_ELEMENTWISE_H
#define BSR_CODEGEN_GPU_CORE_ELEMENTWISE_H

#include "bsr/Codegen/Common/Evaluator.h"

namespace mlir::bsr::gpu {

/// Emits `roots`, a nest of a cluster, into `outputs`, if they are
/// element-wise: a thread takes up to 16 bytes of a result, which lie side by
/// side, and reads everything before it writes. False, and nothing emitted,
/// where a single root is better off with plain loops.
bool emitPointwise(Evaluator &evaluator, ArrayRef<Operation *> roots,
                   const DenseMap<Value, Value> &outputs);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_ELEMENTWISE_H

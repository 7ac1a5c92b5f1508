// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors whose buffers are those of tensors with other dimensions.

#ifndef BSR_CODEGEN_GPU_CORE_RESHAPES_H
#define BSR_CODEGEN_GPU_CORE_RESHAPES_H

#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::bsr::gpu {

/// What `tensor` is, perhaps with its dimensions merged or cut: the same
/// elements lie in its buffer in the same order.
inline Value skipReshapes(Value tensor) {
  Operation *op = tensor.getDefiningOp();
  while (isa_and_present<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op)) {
    tensor = op->getOperand(0);
    op = tensor.getDefiningOp();
  }
  return tensor;
}

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_RESHAPES_H

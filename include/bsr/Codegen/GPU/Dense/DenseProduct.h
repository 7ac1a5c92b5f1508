// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of dense products.

#ifndef BSR_CODEGEN_GPU_DENSE_DENSEPRODUCT_H
#define BSR_CODEGEN_GPU_DENSE_DENSEPRODUCT_H

#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// The kernel for `root`, a contraction of dense operands or `bsr.block_scores`
/// of one: on tensor cores, or on arithmetic units. Null if `root` is none, or
/// none of them takes it.
std::unique_ptr<Product> matchDense(Operation *root, GPUAttr target);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_DENSE_DENSEPRODUCT_H

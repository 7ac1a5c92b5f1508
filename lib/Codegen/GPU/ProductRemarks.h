// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says which kernel a product has, and why it has none of its own.

#ifndef BSR_LIB_CODEGEN_GPU_PRODUCTREMARKS_H
#define BSR_LIB_CODEGEN_GPU_PRODUCTREMARKS_H

#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr {

/// Remarks, if `op` is a product, what a kernel of products for `chip` lacks of
/// it where each sum is one thread's, and which tile was given where there is
/// none of tensor cores.
void remarkPlainProduct(Operation *op, GPUAttr chip);

/// Remarks which tile the kernel of `op`, `product`, has.
void remarkTile(Operation *op, const gpu::Product &product);

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_PRODUCTREMARKS_H

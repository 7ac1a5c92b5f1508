// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the kernel of an attention, or of its gradient.

#ifndef BSR_CODEGEN_GPU_ATTENTION_MATCHATTENTION_H
#define BSR_CODEGEN_GPU_ATTENTION_MATCHATTENTION_H

#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// The kernel for `root`, a `bsr.attention` or `bsr.attention_grad`, on tensor
/// cores. Null if `root` is none, or they do not take it.
std::unique_ptr<Product> matchAttention(Operation *root, GPUAttr target);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_ATTENTION_MATCHATTENTION_H

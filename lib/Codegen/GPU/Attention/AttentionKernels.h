// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of attention and of its gradient, of operands that fit them.

#ifndef BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONKERNELS_H
#define BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONKERNELS_H

#include "AttentionOperands.h"
#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// The kernels of an attention, and of a gradient; null if stages do not fit in
/// the shared memory of `target`.
std::unique_ptr<Product> matchForward(const AttentionOperands &operands,
                                      GPUAttr target);
std::unique_ptr<Product> matchGradient(const AttentionOperands &operands,
                                       GPUAttr target);

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONKERNELS_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of bsr.sddmm.

#ifndef BSR_CODEGEN_GPU_SDDMM_SDDMM_H
#define BSR_CODEGEN_GPU_SDDMM_SDDMM_H

#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// The kernel for `root`, a `bsr.sddmm`: on tensor cores by windows of the
/// pattern or by block rows, or on arithmetic units. Null if `root` is none, or
/// none of them takes it.
std::unique_ptr<Product> matchSDDMM(Operation *root, GPUAttr target);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_SDDMM_SDDMM_H

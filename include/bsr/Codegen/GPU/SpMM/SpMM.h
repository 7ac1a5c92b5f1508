// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of bsr.spmm.

#ifndef BSR_CODEGEN_GPU_SPMM_SPMM_H
#define BSR_CODEGEN_GPU_SPMM_SPMM_H

#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// The kernel for `root`, a `bsr.spmm`, that takes least time on the chip of
/// `target`: by warpgroups, by warps on tensor cores, or on arithmetic units.
/// Null if `root` is none, or none of them takes it.
std::unique_ptr<Product> matchSpMM(Operation *root, GPUAttr target);

/// True if tensor cores multiply elements and blocks of `root`, but `target`
/// asks for a tile that fits neither registers nor shared memory.
bool lacksTile(Operation *root, GPUAttr target);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_SPMM_SPMM_H

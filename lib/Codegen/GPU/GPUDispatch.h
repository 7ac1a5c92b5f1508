// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which kernel computes an operation or a cluster.

#ifndef BSR_LIB_CODEGEN_GPU_GPUDISPATCH_H
#define BSR_LIB_CODEGEN_GPU_GPUDISPATCH_H

#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// The kernel of `op`, in a step or in a cluster; null if `op` is no product,
/// or none that kernels for `target` take.
std::unique_ptr<Product> matchProduct(Operation *op, GPUAttr target);
/// The kernel of the product of `plan`, alone or with its epilogue; null if
/// there is none.
std::unique_ptr<Product> matchProduct(const ClusterPlan &plan, GPUAttr target);

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_GPUDISPATCH_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of dense products.

#include "bsr/Codegen/GPU/Dense/DenseProducts.h"
#include "DenseProduct.h"
#include "LaneDenseProduct.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::unique_ptr<Product> bsr::gpu::matchDense(Operation *root, GPUAttr target) {
  return matchFirst<DenseProduct, LaneDenseProduct>(root, target);
}

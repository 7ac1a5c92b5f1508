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
  auto operands = DenseOperands::match(root);
  if (!operands)
    return nullptr;
  return matchFirst<DenseProduct, LaneDenseProduct>(*operands, target);
}

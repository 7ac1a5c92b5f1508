// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of bsr.sddmm.

#include "bsr/Codegen/GPU/SDDMM/SDDMM.h"
#include "RowSDDMM.h"
#include "StreamKSDDMM.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::unique_ptr<Product> bsr::gpu::matchSDDMM(Operation *root, GPUAttr target) {
  auto product = BlockProduct::match(root);
  if (!product)
    return nullptr;
  return matchFirst<StreamKSDDMM, RowSDDMM>(*product, target);
}

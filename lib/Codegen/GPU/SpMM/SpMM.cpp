// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of bsr.spmm.

#include "bsr/Codegen/GPU/SpMM/SpMM.h"
#include "TiledSpMM.h"
#include "WarpgroupSpMM.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::unique_ptr<Product> bsr::gpu::matchSpMM(Operation *root, GPUAttr target) {
  auto product = BlockProduct::match(root);
  if (!product)
    return nullptr;
  return matchFirst<WarpgroupSpMM, TiledSpMM>(*product, target);
}

bool bsr::gpu::lacksTile(Operation *root, GPUAttr target) {
  auto product = BlockProduct::match(root);
  return isa<SpMMOp>(root) && product &&
         product->fitsFragments(target.getTf32()) &&
         SpMMShape::get(*product, /*isOnTensorCores=*/true) &&
         !WarpgroupSpMM::match(*product, target) &&
         !TiledSpMM::match(*product, target, /*isOnTensorCores=*/true);
}

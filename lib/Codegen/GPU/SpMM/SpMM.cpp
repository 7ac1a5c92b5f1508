// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of bsr.spmm.

#include "bsr/Codegen/GPU/SpMM/SpMM.h"
#include "LaneSpMM.h"
#include "WarpSpMM.h"
#include "WarpgroupSpMM.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::unique_ptr<Product> bsr::gpu::matchSpMM(Operation *root, GPUAttr target) {
  // Launches know of no batches of values.
  auto op = dyn_cast<SpMMOp>(root);
  if (!op || op.getNumBatchDims() != 0)
    return nullptr;
  return matchFirst<WarpgroupSpMM, WarpSpMM, LaneSpMM>(root, target);
}

bool bsr::gpu::lacksTile(Operation *root, GPUAttr target) {
  return SparseOperands::match(root, target.getTf32()) &&
         !matchFirst<WarpgroupSpMM, WarpSpMM>(root, target);
}

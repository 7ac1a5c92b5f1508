// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of bsr.sddmm.

#include "bsr/Codegen/GPU/SDDMM/SDDMM.h"
#include "LaneSDDMM.h"
#include "SmallSDDMM.h"
#include "WarpSDDMM.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::unique_ptr<Product> bsr::gpu::matchSDDMM(Operation *root, GPUAttr target) {
  // Launches know of no batches of values.
  auto op = dyn_cast<SDDMMOp>(root);
  if (!op || op.getNumBatchDims() != 0)
    return nullptr;
  return matchFirst<WarpSDDMM, SmallSDDMM, LaneSDDMM>(root, target);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order of a kernel's instructions in which lanes of a warp meet again.

#ifndef BSR_LIB_CODEGEN_GPU_PREDICTION_BLOCKORDER_H
#define BSR_LIB_CODEGEN_GPU_PREDICTION_BLOCKORDER_H

#include "bsr/Codegen/GPU/Prediction/PTX.h"

namespace mlir::bsr::gpu {

/// A kernel whose instructions are in an order such that what comes before
/// another on each way lies before it, and loops lie in one piece: of lanes
/// that have parted, those with the lowest place go on, and all meet where
/// their ways do. (In PTX, blocks of instructions may lie anywhere.)
struct LaidOutKernel {
  explicit LaidOutKernel(const ptx::Kernel &kernel);

  ptx::Kernel kernel;
  /// What is executed after each instruction that does not branch.
  std::vector<unsigned> next;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_PREDICTION_BLOCKORDER_H

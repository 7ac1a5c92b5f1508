// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What multiplies in a dense product: tensor cores, or lanes.

#ifndef BSR_LIB_CODEGEN_GPU_DENSE_DENSEMULTIPLIER_H
#define BSR_LIB_CODEGEN_GPU_DENSE_DENSEMULTIPLIER_H

#include "DenseMainloop.h"

namespace mlir::bsr::gpu {

/// What multiplies in `mainloop`, with a tile that was chosen so.
std::unique_ptr<Multiplier> createWarpMultiplier(const DenseMainloop &mainloop);
std::unique_ptr<Multiplier> createLaneMultiplier(const DenseMainloop &mainloop);

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_DENSE_DENSEMULTIPLIER_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What multiplies in a dense product: tensor cores, or lanes.

#ifndef BSR_LIB_CODEGEN_GPU_DENSE_DENSEMULTIPLIER_H
#define BSR_LIB_CODEGEN_GPU_DENSE_DENSEMULTIPLIER_H

#include "DenseMainloop.h"

namespace mlir::bsr::gpu {

/// The tile of `operands` if tensor cores multiply them on `target`: of 16-bit
/// elements, or of f32 rounded to tf32; none if they do not, or none fits.
std::optional<DenseTile> chooseWarpTile(const DenseOperands &operands,
                                        GPUAttr target);
/// The tile of f32 whose sums lanes keep in registers, if it takes less time
/// than one element a thread, as the model has it.
std::optional<DenseTile> chooseLaneTile(const DenseOperands &operands,
                                        GPUAttr target);

/// What multiplies in `mainloop`, with a tile that was chosen so.
std::unique_ptr<Multiplier> createWarpMultiplier(const DenseMainloop &mainloop);
std::unique_ptr<Multiplier> createLaneMultiplier(const DenseMainloop &mainloop);

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_DENSE_DENSEMULTIPLIER_H

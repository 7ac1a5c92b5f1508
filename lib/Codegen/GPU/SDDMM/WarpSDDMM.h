// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps of windows that a thread block multiplies, warp by warp.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_WARPSDDMM_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_WARPSDDMM_H

#include "SDDMMTile.h"
#include "bsr/Codegen/GPU/Epilogue/Epilogue.h"

namespace mlir::bsr::gpu {

/// Emits the launch of `op` that leaves sums of windows, which thread blocks
/// have whole or in part. `scratch` is that of StreamKSDDMM.
void emitWarpSDDMM(OpBuilder &b, KernelBody &kernel, SDDMMOp op,
                   const SDDMMShape &shape, const SDDMMTile &tile,
                   ValueRange scratch);

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_WARPSDDMM_H

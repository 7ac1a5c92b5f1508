// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations by clusters and warpgroups.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_CLUSTERSDDMM_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_CLUSTERSDDMM_H

#include "SDDMMTile.h"
#include "bsr/Codegen/GPU/Epilogue/Epilogue.h"

namespace mlir::bsr::gpu {

/// Emits the launch of `op` that leaves sums of windows, each of which the
/// thread blocks of a cluster share. `scratch` is that of StreamKSDDMM.
void emitClusterSDDMM(OpBuilder &b, KernelBody &kernel, SDDMMOp op,
                      const SDDMMShape &shape, const SDDMMTile &tile,
                      ValueRange scratch);

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_CLUSTERSDDMM_H

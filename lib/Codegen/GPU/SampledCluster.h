// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations by clusters and warpgroups.

#ifndef BSR_LIB_CODEGEN_GPU_SAMPLEDCLUSTER_H
#define BSR_LIB_CODEGEN_GPU_SAMPLEDCLUSTER_H

#include "Epilogue.h"
#include "WindowTile.h"

namespace mlir::bsr {

/// Emits the launch of `op` that leaves sums of windows, each of which the
/// blocks of threads of a cluster share. `scratch` is that of SampledProduct.
void emitSampledCluster(OpBuilder &b, KernelBody &kernel, SDDMMOp op,
                        const SampledShape &shape, const WindowTile &tile,
                        ValueRange scratch);

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_SAMPLEDCLUSTER_H

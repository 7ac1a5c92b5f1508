// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Barriers in shared memory, of thread blocks and of clusters.

#ifndef BSR_CODEGEN_GPU_CORE_MBARRIERS_H
#define BSR_CODEGEN_GPU_CORE_MBARRIERS_H

#include "bsr/Codegen/GPU/Core/BlockBuilder.h"

namespace mlir::bsr::gpu {

/// The address space of the shared memory of a cluster.
constexpr unsigned clusterSpace = 7;

/// Makes the 8 bytes of shared memory at `barrier` an mbarrier: a phase ends
/// after `arrivals` and the bytes that are expected.
void initBarrier(BlockBuilder &b, Value barrier, int64_t arrivals);
/// Lets copies and other thread blocks see the mbarriers of this thread
/// once they have met it.
void publishBarriers(BlockBuilder &b);
/// Waits for all threads of the cluster.
void waitForCluster(BlockBuilder &b);
/// Arrives at an mbarrier of this thread block, whose phase is not to end
/// before copies have brought `bytes`.
void expectBytes(BlockBuilder &b, Value barrier, Value bytes);
/// Waits until a phase of an mbarrier has ended: `parity` is 0 for the first,
/// third ... one, 1 for the others.
void waitForPhase(BlockBuilder &b, Value barrier, Value parity);
/// Arrives at the mbarrier that lies where `barrier` does in block `rank` of
/// the cluster.
void arriveAt(BlockBuilder &b, Value barrier, Value rank);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_MBARRIERS_H

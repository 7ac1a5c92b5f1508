// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums that thread blocks leave in memory of groups that are cut.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_SPLITKSUMS_H
#define BSR_LIB_CODEGEN_GPU_SPMM_SPLITKSUMS_H

#include "SpMMPlan.h"

namespace mlir::bsr::gpu {

/// Memory for the sums of slices of groups (`SpMMPlan`): of each thread those
/// that it has in registers.
struct SplitKSums {
  /// Slices and, along tokens, tiles, of which each is that of a thread block,
  /// or of as many as `share` one; of these the threads that have
  /// sums, and how many each has.
  int64_t slices, share, tiles, threads, sums;

  MemRefType getType(MLIRContext *context) const;

  /// Stores the sums of a thread of a slice, in block `rank` of those that
  /// share it.
  void store(BlockBuilder &b, Value memory, Value slice, Value rank,
             ValueRange values) const;
  /// The sums of a thread with those of the slices of `range`, in their order.
  SmallVector<Value> add(BlockBuilder &b, Value memory, const ChunkRange &range,
                         Value rank, ValueRange values) const;

private:
  /// Sums that lie side by side.
  int64_t getLength() const;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_SPLITKSUMS_H

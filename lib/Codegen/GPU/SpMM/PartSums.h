// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums that thread blocks leave in memory of groups that are cut.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_PARTSUMS_H
#define BSR_LIB_CODEGEN_GPU_SPMM_PARTSUMS_H

#include "LinePlan.h"

namespace mlir::bsr::gpu {

/// Memory for the sums of parts of groups (`LinePlan`): of each thread those
/// that it has in registers.
struct PartSums {
  /// Parts and, along tokens, tiles, of which each is that of a thread block,
  /// or of as many as `share` one; of these the threads that have
  /// sums, and how many each has.
  int64_t parts, share, tiles, threads, sums;

  MemRefType getType(MLIRContext *context) const;

  /// Stores the sums of a thread of a part, in block `rank` of those that share
  /// it.
  void store(BlockBuilder &b, Value memory, Value part, Value rank,
             ValueRange values) const;
  /// The sums of a thread with those of the parts of `range`, in their order.
  SmallVector<Value> add(BlockBuilder &b, Value memory, const ChunkRange &range,
                         Value rank, ValueRange values) const;

private:
  /// Sums that lie side by side.
  int64_t getLength() const;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_PARTSUMS_H

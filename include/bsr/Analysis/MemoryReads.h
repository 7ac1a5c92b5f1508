// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an operation reads of values in memory, and where.

#ifndef BSR_ANALYSIS_MEMORYREADS_H
#define BSR_ANALYSIS_MEMORYREADS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// Values that are in memory; everything up to them is computed where it is
/// used.
using IsLeaf = llvm::function_ref<bool(Value)>;

/// What an operation reads: `tensor` at its loops `at`, one for each dimension,
/// or -1 where it is at anything else.
struct Read {
  Value tensor;
  SmallVector<int64_t> at;
};

/// What `op` reads of leaves, by way of what is computed where it is used.
SmallVector<Read> getReads(linalg::GenericOp op, IsLeaf isLeaf);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_MEMORYREADS_H

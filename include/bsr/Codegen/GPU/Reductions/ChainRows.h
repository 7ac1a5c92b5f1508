// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chains of reductions and element-wise operations in one launch.

#ifndef BSR_CODEGEN_GPU_REDUCTIONS_CHAINROWS_H
#define BSR_CODEGEN_GPU_REDUCTIONS_CHAINROWS_H

#include "bsr/Codegen/Common/KernelTarget.h"

namespace mlir::bsr::gpu {

/// A chain without a product whose work items share a launch: softmax,
/// normalizations, losses.
class ChainRows {
public:
  /// The chain that `plan` is; none if its launch would have too few threads.
  static std::optional<ChainRows> match(const ClusterPlan &plan);

  /// The memory for partial sums.
  SmallVector<MemRefType> getScratch() const;
  LogicalResult emit(OpBuilder &b, KernelBody &kernel) const;

private:
  friend class ChainRowsEmitter;

  int64_t getNumGroups() const { return llvm::divideCeil(numItems, items); }
  int64_t getNumThreads() const { return items * segments; }
  /// The rows that a thread takes of a nest with `count`.
  int64_t getNumTaken(int64_t count) const { return count / segments; }
  /// True if a thread takes few rows of each nest, as many as all others.
  bool areRowsFew() const;

  const Chain *chain;
  SmallVector<Chain::Nest> nests;
  /// Neighbouring threads have neighbouring rows of one item, not one row of
  /// neighbouring items.
  bool areRowsAdjacent;
  /// Of all, and of a thread block; the threads that share one.
  int64_t numItems, items, segments;
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_REDUCTIONS_CHAINROWS_H

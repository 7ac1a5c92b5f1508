// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How one kernel goes through the operations of a cluster.

#ifndef BSR_ANALYSIS_CLUSTERPLAN_H
#define BSR_ANALYSIS_CLUSTERPLAN_H

#include "bsr/Analysis/Chain.h"

namespace mlir::bsr {

/// The nests of a cluster, which each compute one operation, or element-wise
/// operations of one space; or its chain, if work items can go through all of
/// them.
struct ClusterPlan {
  /// The plan of `cluster` for `target`; an error at the operation that no
  /// kernel can compute, or whose result has no place.
  static FailureOr<ClusterPlan> get(ClusterOp cluster,
                                    TargetAttrInterface target);

  /// What is computed before what reads it: results, what computes pieces of
  /// them or is stored where they will be, products with an epilogue and all
  /// reductions. In their order.
  SmallVector<Operation *> roots;
  /// The roots that compute pieces of a concatenation where they belong.
  DenseSet<Operation *> pieces;
  std::optional<Chain> chain;
  /// In their order; none if there is a chain.
  SmallVector<SmallVector<Operation *>> nests;
  /// Values that are stored, but are no results, with the results in whose
  /// buffers they lie until they have been read.
  SmallVector<std::pair<Value, Value>> places;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_CLUSTERPLAN_H

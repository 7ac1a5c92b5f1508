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
  /// Chooses a plan of `cluster` for `target`. The element-wise operations
  /// `stored` are roots of a chain, too, whose later nests read them. Nothing,
  /// and a report of an operation, if no kernel can compute it, or can only
  /// compute it as a result.
  static std::optional<ClusterPlan> match(ClusterOp cluster,
                                          TargetAttrInterface target,
                                          const DenseSet<Operation *> &stored,
                                          Report report);

  /// The plan that is written in `cluster`; nothing, and a report of an
  /// operation, if there is none or no kernel for `target` can follow it.
  static std::optional<ClusterPlan>
  get(ClusterOp cluster, TargetAttrInterface target, Report report);

  /// Writes the plan in `cluster`.
  void write(ClusterOp cluster) const;

  /// What is computed before what reads it: results, what computes pieces of
  /// them or is stored where they will be, products with an epilogue and all
  /// reductions. In their order; a concatenation is none, its pieces are.
  SmallVector<Operation *> roots;
  /// The roots that compute pieces of a concatenation where they belong.
  DenseSet<Operation *> pieces;
  std::optional<Chain> chain;
  /// In their order; none if there is a chain.
  SmallVector<SmallVector<Operation *>> nests;
  /// Values that are stored, but are no results, with the results in whose
  /// buffers they lie until they have been read.
  SmallVector<std::pair<Value, Value>> places;
  /// Values that are stored, but are no results, and have no such place: they
  /// must become results. None in a plan that is written.
  SmallVector<Value> unplaced;
};

/// Lets the verifier of `bsr.cluster` check plans.
void registerClusterPlanVerifier(DialectRegistry &registry);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_CLUSTERPLAN_H

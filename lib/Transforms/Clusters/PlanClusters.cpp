// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans clusters that have no plan.

#include "Pieces.h"
#include "bsr/Analysis/ClusterPlan.h"
#include "bsr/Transforms/Clusters/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRPLANCLUSTERS
#include "bsr/Transforms/Clusters/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Plans `cluster` for the module's target.
static LogicalResult plan(ClusterOp cluster) {
  addPieceProducers(cluster);
  std::optional<ClusterPlan> plan = ClusterPlan::match(
      cluster, getTarget(cluster), /*stored=*/{}, emitReport);
  if (!plan)
    return failure();
  for (Value value : plan->unplaced)
    return value.getDefiningOp()->emitError(
        "expected a value that is a result or may lie where one of its type "
        "will, but got neither");
  plan->write(cluster);
  return success();
}

namespace {
struct PlanClusters : bsr::impl::BSRPlanClustersBase<PlanClusters> {
  using Base::Base;

  void runOnOperation() override {
    for (auto cluster : getOperation().getOps<ClusterOp>()) {
      if (cluster.getPlan())
        continue;
      if (failed(plan(cluster)))
        return signalPassFailure();
      ++numPlanned;
    }
  }
};
} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How one kernel goes through the operations of a cluster.

#include "bsr/Analysis/ClusterPlan.h"
#include "bsr/Analysis/Kernels.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// The operations of a cluster as its plan sees them.
class Planner {
public:
  Planner(ClusterOp cluster, TargetAttrInterface target, ClusterPlan &plan);

  /// Checks that kernels can compute the operations.
  LogicalResult verifyOperations();
  /// The chain of the roots, if they are one.
  std::optional<Chain> matchChain();
  /// Checks that without a chain, each root is a result or a piece of one.
  LogicalResult verifyResults();
  /// Finds the places of what `chain` stores, but is no result.
  LogicalResult findPlaces(const Chain &chain, ClusterPlan &plan);
  SmallVector<SmallVector<Operation *>> getNests();

private:
  bool isResult(Operation *op) const {
    return llvm::is_contained(op->getUsers(), terminator);
  }

  Block &body;
  Operation *terminator;
  TargetAttrInterface target;
  DenseSet<Operation *> &pieces;
  SmallVector<Operation *> &roots;
};
} // namespace

Planner::Planner(ClusterOp cluster, TargetAttrInterface target,
                 ClusterPlan &plan)
    : body(cluster.getBody().front()), terminator(body.getTerminator()),
      target(target), pieces(plan.pieces), roots(plan.roots) {
  for (auto concat : body.getOps<tensor::ConcatOp>())
    for (Value piece : concat.getInputs())
      if (linalg::GenericOp producer = getPieceProducer(piece))
        pieces.insert(producer);
  for (Operation &op : body.without_terminator()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (isResult(&op) || pieces.contains(&op) || target.acceptsEpilogue(&op) ||
        op.hasAttr(attrs::stored) || (generic && !isPointwise(generic)))
      roots.push_back(&op);
  }
}

LogicalResult Planner::verifyOperations() {
  for (Operation &op : body.without_terminator()) {
    bool isRoot = isResult(&op) || target.acceptsEpilogue(&op);
    if (isRoot ? canCompute(&op) : isInlinable(&op))
      continue;
    return op.emitError("expected an operation that a cluster can compute, "
                        "but got '")
           << op.getName() << "'";
  }
  return success();
}

std::optional<Chain> Planner::matchChain() {
  auto isLeaf = [&](Value value) {
    return isa<BlockArgument>(value) ||
           llvm::is_contained(roots, value.getDefiningOp());
  };
  return Chain::match(roots, isLeaf, target);
}

LogicalResult Planner::verifyResults() {
  for (Operation *root : roots)
    if (!isResult(root) && !pieces.contains(root))
      return root->emitError("expected a sum that is a result or is read by "
                             "the work item that computes it, but got one "
                             "that is neither");
  return success();
}

LogicalResult Planner::findPlaces(const Chain &chain, ClusterPlan &plan) {
  SmallVector<Value> stored;
  for (Operation *root : roots)
    if (!isResult(root) &&
        (target.acceptsEpilogue(root) || root->hasAttr(attrs::stored)))
      stored.push_back(root->getResult(0));
  SmallVector<Value> places = chain.getPlaces(stored, [&](Value value) {
    return llvm::is_contained(terminator->getOperands(), value);
  });
  for (auto [value, place] : llvm::zip_equal(stored, places)) {
    if (!place)
      return value.getDefiningOp()->emitError(
          "expected a value that is a result or may lie where one of its type "
          "will, but got neither");
    plan.places.push_back({value, place});
  }
  return success();
}

/// Element-wise operations over one space are one nest, every other root is a
/// nest. A concatenation is none: each of its pieces is.
SmallVector<SmallVector<Operation *>> Planner::getNests() {
  SmallVector<SmallVector<Operation *>> nests;
  for (Operation *root : roots) {
    if (isa<tensor::ConcatOp>(root))
      continue;
    if (!nests.empty() && !pieces.contains(root) &&
        !pieces.contains(nests.back().front()) &&
        isOnePointwiseNest(nests.back().front(), root))
      nests.back().push_back(root);
    else
      nests.push_back({root});
  }
  return nests;
}

FailureOr<ClusterPlan> ClusterPlan::get(ClusterOp cluster,
                                        TargetAttrInterface target) {
  ClusterPlan plan;
  Planner planner(cluster, target, plan);
  if (failed(planner.verifyOperations()))
    return failure();
  plan.nests = planner.getNests();
  plan.chain = planner.matchChain();
  if (!plan.chain) {
    if (failed(planner.verifyResults()))
      return failure();
    return plan;
  }
  if (failed(planner.findPlaces(*plan.chain, plan)))
    return failure();
  // A single nest has its own loops.
  if (plan.nests.size() == 1) {
    plan.chain.reset();
    plan.places.clear();
  } else {
    plan.nests.clear();
  }
  return plan;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which arguments of a cluster its results may be written over.

#include "bsr/Analysis/InPlace.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/Windows.h"
#include "mlir/Analysis/SliceAnalysis.h"

using namespace mlir;
using namespace mlir::bsr;

/// The arguments that an element-wise nest reads at another place than the one
/// that it writes.
static DenseSet<Value> getReadElsewhere(ArrayRef<Operation *> nest) {
  DenseSet<Value> elsewhere;
  for (Operation *root : nest) {
    auto op = cast<linalg::GenericOp>(root);
    SmallVector<std::optional<unsigned>> written = getResultLoops(op);
    ArrayRef<int64_t> shape =
        cast<RankedTensorType>(op.getResult(0).getType()).getShape();
    for (const Read &access : getReads(op, llvm::IsaPred<BlockArgument>)) {
      bool isThere =
          access.at.size() == written.size() &&
          llvm::all_of(llvm::zip(access.at, written, shape), [](auto it) {
            auto [read, loop, extent] = it;
            return extent == 1 || (loop && read == *loop);
          });
      if (!isThere)
        elsewhere.insert(access.tensor);
    }
  }
  return elsewhere;
}

SmallVector<int64_t> bsr::getUpdatedArguments(ClusterOp cluster,
                                              const Chain &chain) {
  Operation *product = chain.getProduct().getDefiningOp();
  SetVector<Operation *> before;
  BackwardSliceOptions options;
  options.inclusive = true;
  (void)getBackwardSlice(product, &before, options);
  SmallVector<Operation *> roots =
      llvm::map_to_vector(chain.getRoots(), [](const Chain::Root &root) {
        return root.op.getOperation();
      });
  DenseSet<Value> elsewhere = getReadElsewhere(roots);
  SmallVector<int64_t> result;
  for (BlockArgument argument : cluster.getBody().getArguments())
    if (isa<RankedTensorType>(argument.getType()) &&
        !elsewhere.contains(argument) &&
        llvm::none_of(argument.getUsers(),
                      [&](Operation *user) { return before.contains(user); }))
      result.push_back(argument.getArgNumber());
  return result;
}

SmallVector<int64_t> bsr::getInPlaceArguments(ClusterOp cluster,
                                              const ClusterPlan &plan) {
  Block &body = cluster.getBody().front();
  auto isStored = [&](Value value) {
    return llvm::is_contained(body.getTerminator()->getOperands(), value) ||
           llvm::is_contained(llvm::make_first_range(plan.places), value);
  };
  // Sums of windows are of a product, which reads its operands anywhere.
  bool isOneNest = plan.nests.size() == 1 && plan.pieces.empty() &&
                   !SummedWindows::get(plan.nests[0][0]) &&
                   isOnePointwiseNest(plan.nests[0][0], plan.nests[0][0]);
  DenseSet<Value> elsewhere;
  if (isOneNest)
    elsewhere = getReadElsewhere(plan.nests[0]);
  SmallVector<int64_t> result;
  for (BlockArgument argument : body.getArguments())
    if (isa<RankedTensorType>(argument.getType()) &&
        (plan.chain ? plan.chain->isReadFirst(argument, isStored)
                    : isOneNest && !elsewhere.contains(argument)))
      result.push_back(argument.getArgNumber());
  return result;
}

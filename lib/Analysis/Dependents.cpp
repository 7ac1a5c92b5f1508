// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What operations depend on, and what depends on them.

#include "bsr/Analysis/Dependents.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::bsr;

bool bsr::isNumber(Value value) {
  auto type = dyn_cast<ShapedType>(value.getType());
  return !type || (type.hasStaticShape() && type.getNumElements() == 1);
}

int64_t bsr::countElements(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type ? type.getNumElements() : 1;
}

DenseSet<Operation *> bsr::getDependents(ArrayRef<Operation *> sources) {
  DenseSet<Operation *> dependents;
  SmallVector<Operation *> worklist(sources);
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val()->getUsers())
      for (; user && dependents.insert(user).second; user = user->getParentOp())
        worklist.push_back(user);
  return dependents;
}

bool Dependents::contains(Operation *op) const {
  if (!found)
    found = getDependents(sources);
  return found->contains(op);
}

void bsr::visitReads(Operation *op, function_ref<void(Value)> visit) {
  llvm::for_each(op->getOperands(), visit);
  if (isa<linalg::LinalgOp>(op)) {
    // What the body makes of entries is of operands, but it may extract others.
    visitUsedValuesDefinedAbove(op->getRegions(),
                                [&](OpOperand *use) { visit(use->get()); });
    return;
  }
  for (Region &region : op->getRegions())
    region.walk(
        [&](Operation *inner) { llvm::for_each(inner->getOperands(), visit); });
}

void bsr::eraseDead(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

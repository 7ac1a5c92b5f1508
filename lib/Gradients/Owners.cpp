// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whose next values depend on what a step computes.

#include "bsr/Gradients/Owners.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/ElementWise.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::bsr;

void Owners::find() {
  if (!owners.empty())
    return;
  auto reach = [&](Value value, const BitVector &by) {
    if (!isNumber(value) && by.any())
      owners[value] |= by;
  };
  for (unsigned number : llvm::seq(spaces.size())) {
    BitVector self(spaces.size());
    self.set(number);
    for (Value root : spaces[number].roots)
      reach(root, self);
  }
  SmallVector<Operation *> ops;
  func.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : llvm::reverse(ops)) {
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      for (Region *region : {&branch.getThenRegion(), &branch.getElseRegion()})
        if (!region->empty())
          for (auto [result, yielded] :
               llvm::zip_equal(branch.getResults(),
                               region->front().getTerminator()->getOperands()))
            reach(yielded, owners.lookup(result));
      continue;
    }
    BitVector all(spaces.size());
    for (Value result : op->getResults())
      all |= owners.lookup(result);
    visitReads(op, [&](Value value) { reach(value, all); });
  }
}

BitVector Owners::getReached(unsigned number, OpOperand &use) {
  BitVector all(spaces.size());
  Operation *user = use.getOwner();
  ValueRange results = user->getResults();
  if (isa<scf::YieldOp>(user))
    results = user->getParentOp()->getResults();
  if (spaces.isInside(number, use) || llvm::all_of(results, isNumber))
    return all;
  find();
  for (Value result : results)
    all |= owners.lookup(result);
  return all;
}

bool Owners::reachesOthers(unsigned number, OpOperand &use, bool isOnly) {
  BitVector reached = getReached(number, use);
  bool isOwn = reached.test(number);
  reached.reset(number);
  return reached.any() && !(isOnly && isOwn);
}

bool Owners::reachesOwn(unsigned number, OpOperand &use) {
  return getReached(number, use).test(number);
}

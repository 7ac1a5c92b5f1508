// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a step computes for each micro-batch anew.

#include "Differing.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Dialect/Transfers.h"

using namespace mlir;
using namespace mlir::bsr;

void bsr::visitAllReads(Operation *op, function_ref<void(Value)> visit) {
  op->walk([&](Operation *inner) {
    for (Value read : inner->getOperands())
      visit(read);
  });
}

bool bsr::isSame(func::FuncOp step, unsigned arg) {
  if (attrs::result.ofArg(step, arg) ||
      isa<PatternType>(step.getArgument(arg).getType()))
    return true;
  StringAttr role = attrs::role.ofArg(step, arg);
  return role &&
         llvm::is_contained(
             {"param", "state", "lr", "step", "apply", "pattern"}, role);
}

bool bsr::isOfMicroBatch(func::FuncOp step, unsigned arg) {
  StringAttr role = attrs::role.ofArg(step, arg);
  return !isSame(step, arg) &&
         !(role && (role == "buffer" || role == "constant"));
}

DenseSet<Value> bsr::findDiffering(func::FuncOp step) {
  DenseSet<Value> differing;
  for (BlockArgument argument : step.getArguments())
    if (isOfMicroBatch(step, argument.getArgNumber()))
      differing.insert(argument);
  for (Operation &op : step.front()) {
    auto receive = dyn_cast<ReceiveOp>(op);
    bool differs = receive && !receive.getOnce();
    if (!isa<AllReduceOp>(op))
      visitAllReads(&op,
                    [&](Value read) { differs |= differing.contains(read); });
    if (differs)
      differing.insert_range(op.getResults());
  }
  return differing;
}

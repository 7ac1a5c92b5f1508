// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What in the space of a weight others see.

#include "bsr/Gradients/Activations.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/ElementWise.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::bsr;

/// Calls `reach`, which adds to `worklist`, for what the values there are made
/// of, entry by entry.
static void visitEntryWise(SmallVectorImpl<Value> &worklist,
                           function_ref<void(Value)> reach) {
  while (!worklist.empty())
    if (Operation *op = worklist.pop_back_val().getDefiningOp();
        op && isEntryWise(op))
      visitReads(op, reach);
}

/// True if `value` is what the sums of `op` start with, and nothing else of it:
/// it is added to them.
static bool isStart(Operation *op, Value value) {
  auto sum = dyn_cast<linalg::LinalgOp>(op);
  return sum && sum.getNumReductionLoops() &&
         llvm::is_contained(sum.getDpsInits(), value) &&
         !llvm::is_contained(sum.getDpsInputs(), value);
}

bool bsr::comesBack(unsigned number, OpOperand &use, const Spaces &spaces,
                    const StepData &data, Owners &owners) {
  if (!owners.reachesOwn(number, use))
    return false;
  DenseSet<Operation *> dependents = getDependents(use.get().getDefiningOp());
  SmallVector<Operation *> worklist = {use.getOwner()};
  DenseSet<Operation *> seen = {use.getOwner()};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val();
    // What is returned side by side is not brought together.
    if (isa<func::ReturnOp>(op))
      continue;
    bool readsData = false;
    visitReads(op, [&](Value read) {
      readsData |= data.contains(read) && read != use.get() &&
                   !isStart(op, read) &&
                   !dependents.contains(read.getDefiningOp());
    });
    if (readsData)
      return true;
    for (OpResult result : op->getResults())
      if (!isNumber(result) && !spaces[number].entries.contains(result))
        for (Operation *user : result.getUsers())
          if (seen.insert(user).second)
            worklist.push_back(user);
  }
  return false;
}

DenseSet<Value> bsr::getActivations(unsigned number, const Spaces &spaces,
                                    const StepData &data, Owners &owners,
                                    bool isAdded) {
  const Space &space = spaces[number];
  // What the weight and its moments enter is no gradient any more.
  DenseSet<Value> updates;
  SmallVector<Value> worklist;
  auto reachUpdate = [&](Value value) {
    if (space.entries.contains(value) && updates.insert(value).second)
      worklist.push_back(value);
  };
  for (auto &known : space.entries)
    if (known.first.getDefiningOp<ToDenseOp>())
      reachUpdate(known.first);
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val().getUsers())
      if (isEntryWise(user))
        llvm::for_each(user->getResults(), reachUpdate);

  DenseSet<Value> activations;
  auto reach = [&](Value value) {
    if (space.entries.contains(value) && !updates.contains(value) &&
        activations.insert(value).second)
      worklist.push_back(value);
  };
  for (auto &known : space.entries) {
    Value value = known.first;
    Operation *op = value.getDefiningOp();
    if (!op || isNumber(value) || updates.contains(value) ||
        matchPattern(value, m_Constant()) || isa<tensor::EmptyOp>(op))
      continue;
    std::optional<DenseSet<Operation *>> dependents;
    for (OpOperand &use : value.getUses()) {
      if (!owners.reachesOthers(number, use, /*isOnly=*/false)) {
        if (!isAdded || !comesBack(number, use, spaces, data, owners))
          continue;
        reach(value);
        break;
      }
      bool isActivation = owners.reachesOthers(number, use, /*isOnly=*/true);
      if (!isActivation) {
        if (!dependents)
          dependents = getDependents(op);
        visitReads(use.getOwner(), [&](Value other) {
          isActivation |=
              other != value && !isNumber(other) &&
              !isStart(use.getOwner(), other) &&
              !isa_and_nonnull<tensor::EmptyOp>(other.getDefiningOp()) &&
              !matchPattern(other, m_Constant()) &&
              !dependents->contains(other.getDefiningOp());
        });
      }
      if (isActivation) {
        reach(value);
        break;
      }
    }
  }
  visitEntryWise(worklist, reach);
  return activations;
}

DenseSet<Value> bsr::getOpen(unsigned number, const Spaces &spaces) {
  const Space &space = spaces[number];
  DenseSet<Value> open;
  SmallVector<Value> worklist;
  auto reach = [&](Value value) {
    if (space.entries.contains(value) && open.insert(value).second)
      worklist.push_back(value);
  };
  SmallVector<Value> values(llvm::make_first_range(space.entries));
  for (Value value : values)
    if (llvm::any_of(value.getUses(), [&](OpOperand &use) {
          return !spaces.isInside(number, use);
        }))
      reach(value);
  visitEntryWise(worklist, reach);
  return open;
}

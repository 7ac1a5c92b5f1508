// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What in a step depends on its data.

#include "bsr/Analysis/StepData.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/EntryMaps.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

bool StepData::isData(BlockArgument arg) const {
  func::FuncOp func = this->func;
  return arg.getParentRegion() == &func.getBody() &&
         isa<RankedTensorType>(arg.getType()) &&
         !attrs::result.ofArg(func, arg.getArgNumber()) &&
         !attrs::pattern.ofArg(func, arg.getArgNumber()) &&
         !attrs::patternNumber.ofArg(func, arg.getArgNumber());
}

bool bsr::isGather(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  return linalgOp && linalgOp.getNumReductionLoops() == 0 && !isEntryWise(op);
}

static bool hasIntegers(Value value) {
  return getElementTypeOrSelf(value.getType()).isInteger();
}

/// True if `value` is a number that may be a batch: rates and counts have no
/// dimensions, or those of one.
static bool isBatchOfOne(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isNumber(value) &&
         type.getRank() > (type.getElementType().isInteger() ? 0 : 1);
}

/// True if `result` of `op`, a number, is data as `operand` is: a function of a
/// batch of one number, or a product of activations, where a norm is none.
static bool isNumberOfData(Value result, Value operand, Operation *op) {
  auto type = dyn_cast<RankedTensorType>(result.getType());
  if (!type)
    return false;
  if (isNumber(operand))
    return type.getRank() > 0 || hasIntegers(result);
  auto product = dyn_cast<linalg::LinalgOp>(op);
  return product && product.getNumReductionLoops() &&
         product.getNumDpsInputs() > 1 && type.getRank() > 0;
}

StepData::StepData(func::FuncOp func) : func(func) {
  SmallVector<Value> worklist;
  auto add = [&](Value value) {
    if (data.insert(value).second)
      worklist.push_back(value);
  };
  // A single integer is data where it looks up what is more than a number.
  DenseSet<Value> places;
  auto reachLookups = [&](auto &self, Value number) -> void {
    if (!places.insert(number).second)
      return;
    for (Operation *user : number.getUsers())
      for (Value result : user->getResults())
        if (isNumber(result) && hasIntegers(result))
          self(self, result);
        else if (!isNumber(result) && isGather(user))
          add(result);
  };
  for (BlockArgument arg : func.getArguments()) {
    if (!isData(arg))
      continue;
    if (!isNumber(arg) || isBatchOfOne(arg))
      add(arg);
    else if (hasIntegers(arg))
      reachLookups(reachLookups, arg);
  }
  SmallVector<Operation *> readers;
  for (Value value : worklist)
    llvm::append_range(readers, value.getUsers());
  behind = Dependents(readers);
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    for (Operation *user : value.getUsers())
      for (; user && user != func; user = user->getParentOp())
        for (Value result : user->getResults())
          if (!isNumber(result) || isNumberOfData(result, value, user))
            add(result);
  }
}

bool StepData::isOnlyOf(Value value, const DenseSet<Value> &values) const {
  bool isOf = false, isData = false;
  DenseSet<Value> seen;
  SmallVector<Operation *> worklist;
  auto reach = [&](Value next) {
    if (!seen.insert(next).second)
      return;
    auto arg = dyn_cast<BlockArgument>(next);
    if (values.contains(next))
      isOf = true;
    else if (!arg)
      worklist.push_back(next.getDefiningOp());
    else
      isData |= this->isData(arg);
  };
  reach(value);
  while (!worklist.empty() && !isData)
    visitReads(worklist.pop_back_val(), reach);
  return isOf && !isData;
}

bool StepData::reaches(Operation *op, const DenseSet<Value> &gradients,
                       bool &reachesGradient) const {
  func::FuncOp func = this->func;
  bool found = false;
  DenseSet<Value> seen;
  SmallVector<Operation *> worklist = {op};
  auto reach = [&](Value value) {
    if ((isNumber(value) && !contains(value)) || !seen.insert(value).second)
      return;
    if (gradients.contains(value)) {
      reachesGradient = true;
      return;
    }
    if (Operation *producer = value.getDefiningOp()) {
      worklist.push_back(producer);
      return;
    }
    auto arg = cast<BlockArgument>(value);
    if (arg.getParentRegion() != &func.getBody()) {
      worklist.push_back(arg.getOwner()->getParentOp());
      return;
    }
    found |= isData(arg);
  };
  while (!worklist.empty())
    visitReads(worklist.pop_back_val(), reach);
  return found;
}

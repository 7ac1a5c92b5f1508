// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a step is made of, and the parts of its forward part.

#include "StepReader.h"
#include "bsr/Analysis/EntryMaps.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Analysis/Work.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::partition;

double partition::getBytes(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.hasStaticShape())
    return 0;
  unsigned bits = type.getElementTypeBitWidth();
  return double(type.getNumElements()) * ((bits + 7) / 8);
}

void partition::visitAll(Operation *op, function_ref<void(Value)> visit) {
  op->walk([&](Operation *inner) {
    for (Value read : inner->getOperands())
      if (inner == op || !op->isAncestor(read.getParentRegion()->getParentOp()))
        visit(read);
  });
}

Value partition::getSource(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    bool isCopy =
        generic && getWorkKind(op) == "copy" && generic.getNumDpsInputs() == 1;
    if (!isCopy &&
        !isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::CastOp>(
            op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

bool partition::hasKernel(Operation *op) {
  return !llvm::is_contained(
      ArrayRef<StringRef>{"elementwise", "copy", "other"}, getWorkKind(op));
}

Work partition::getWork(Operation *op) {
  Work work;
  if (!hasKernel(op))
    return work;
  work.flops = double(getFlops(op));
  llvm::SmallSetVector<Value, 8> reads;
  visitAll(op, [&](Value read) { reads.insert(getSource(read)); });
  for (Value read : reads)
    work.bytes += getBytes(read);
  for (Value result : op->getResults())
    work.bytes += getBytes(result);
  return work;
}

static int64_t getNumElements(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() ? type.getNumElements() : 1;
}

LogicalResult StepReader::findLoss() {
  auto end = cast<func::ReturnOp>(step.front().getTerminator());
  SmallVector<BlockArgument> carriers = getCarriers(step);
  for (OpOperand &operand : end->getOpOperands()) {
    unsigned number = operand.getOperandNumber();
    if (carriers[number] || isScores(step, number) ||
        !isNumber(operand.get()) ||
        !isa<FloatType>(getElementTypeOrSelf(operand.get().getType())))
      continue;
    StringAttr role = attrs::role.ofResult(step, number);
    StringAttr name = attrs::name.ofResult(step, number);
    bool isLoss = (role && role.getValue() == "loss") ||
                  (!role && name && name.getValue() == "loss");
    if (!loss || isLoss)
      loss = operand.get();
    if (isLoss)
      break;
  }
  if (!loss || !loss.getDefiningOp())
    return step.emitError("expected a step that returns its loss, one "
                          "floating-point number that it computes, to tell its "
                          "forward part from its backward part, but got none");
  SmallVector<Operation *> worklist = {loss.getDefiningOp()};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val();
    if (!forward.insert(op).second)
      continue;
    visitAll(op, [&](Value read) {
      Operation *producer = read.getDefiningOp();
      if (producer && producer->getBlock() == &step.front())
        worklist.push_back(producer);
    });
  }
  return success();
}

LogicalResult StepReader::findSamples() {
  for (BlockArgument argument : step.getArguments()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    StringAttr role = attrs::role.ofArg(step, argument.getArgNumber());
    if (!type || !type.getRank() || !data.isData(argument) ||
        (role && role.getValue() != "batch"))
      continue;
    int64_t extent = type.getDimSize(0);
    if (result.samples && result.samples != extent) {
      result.samples = 0;
      return success(); // they are asked for
    }
    result.samples = extent;
  }
  return success();
}

void StepReader::findGroups() {
  auto end = cast<func::ReturnOp>(step.front().getTerminator());
  SmallVector<BlockArgument> carriers = getCarriers(step);
  llvm::EquivalenceClasses<unsigned> same; // numbers of arguments
  for (auto [number, carrier] : llvm::enumerate(carriers)) {
    if (!carrier || isNumber(carrier))
      continue;
    same.insert(carrier.getArgNumber());
    // Moments are what the next value depends on entry by entry.
    DenseSet<Value> seen;
    SmallVector<Value> worklist = {end.getOperand(number)};
    while (!worklist.empty()) {
      Value value = worklist.pop_back_val();
      if (getNumElements(value) != getNumElements(carrier) ||
          !seen.insert(value).second)
        continue;
      if (auto argument = dyn_cast<BlockArgument>(value)) {
        if (argument.getOwner() == &step.front() &&
            attrs::result.ofArg(step, argument.getArgNumber()))
          same.unionSets(carrier.getArgNumber(), argument.getArgNumber());
        continue;
      }
      Operation *op = value.getDefiningOp();
      if (forward.contains(op) || !isEntryWise(op))
        continue;
      visitAll(op, [&](Value read) { worklist.push_back(read); });
    }
  }
  DenseMap<unsigned, unsigned> numbers;
  for (auto [number, carrier] : llvm::enumerate(carriers)) {
    if (!carrier || isNumber(carrier))
      continue;
    unsigned arg = carrier.getArgNumber();
    unsigned leader = same.getLeaderValue(arg);
    auto [it, isNew] = numbers.try_emplace(leader, groups.size());
    if (isNew)
      groups.emplace_back();
    Group &group = groups[it->second];
    groupOf[carrier] = it->second;
    resultGroups[number] = it->second;
    group.stateBytes += getBytes(carrier);
    StringAttr role = attrs::role.ofArg(step, arg);
    if (group.name.empty() || (role && role.getValue() == "param")) {
      group.name = attrs::name.ofArg(step, arg).str();
      group.gradientBytes = getBytes(carrier);
    }
  }
  // Scores of blocks are where their weight is.
  for (unsigned number = 0; number < step.getNumResults(); ++number)
    if (isScores(step, number))
      if (auto found = groupOf.find(getScored(step, number));
          found != groupOf.end())
        resultGroups[number] = found->second;
  for (BlockArgument argument : step.getArguments()) {
    StringAttr role = attrs::role.ofArg(step, argument.getArgNumber());
    result.accumulates |= role && role.getValue() == "apply";
  }
}

ArrayRef<unsigned> StepReader::getGroups(Value value) {
  auto found = groupsOf.find(value);
  if (found != groupsOf.end())
    return found->second;
  SmallVector<unsigned> made;
  if (auto group = groupOf.find(value); group != groupOf.end()) {
    made.push_back(group->second);
  } else if (Operation *op = value.getDefiningOp();
             op && !data.contains(value)) {
    visitAll(op, [&](Value read) {
      for (unsigned group : getGroups(read))
        if (!llvm::is_contained(made, group))
          made.push_back(group);
    });
  }
  return groupsOf[value] = std::move(made);
}

LogicalResult StepReader::readForward() {
  unsigned numStarts = 0;
  result.parts.emplace_back();
  for (Operation &op : step.front()) {
    if (!forward.contains(&op))
      continue;
    bool readsData = false, readsWeight = false, isActivation = false;
    SmallVector<unsigned> read;
    visitAll(&op, [&](Value value) {
      readsData |= data.contains(value);
      isActivation |= activations.contains(value);
      llvm::append_range(read, getGroups(value));
      readsWeight |= !getGroups(value).empty() && !isNumber(value);
    });
    if (!readsData)
      continue;
    if (readsWeight && hasKernel(&op)) {
      // What stands before the first belongs to it.
      if (numStarts++)
        result.parts.emplace_back();
      result.parts.back().name = groups[read.front()].name;
    }
    unsigned at = result.parts.size() - 1;
    for (unsigned group : read)
      groups[group].parts.insert(at);
    for (Value value : op.getResults()) {
      partOf[value] = at;
      if (isActivation || !read.empty())
        activations.insert(value);
    }
    result.parts[at].forward.push_back(getWork(&op));
  }
  if (numStarts < 2)
    return step.emitError("expected a step with at least two products with "
                          "weights, one after the other, to cut between them, "
                          "but got ")
           << numStarts << " (a loop that stays is not cut)";
  return success();
}

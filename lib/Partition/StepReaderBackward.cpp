// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part that computes what follows the loss, and what passes between parts.

#include "StepReader.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::partition;

/// Gives state of another shape than its parameter, such as sums of rows, to
/// the only parameter whose next value it reaches.
void StepReader::mergeStates() {
  DenseMap<unsigned, unsigned> targets;
  for (auto [argument, group] : groupOf) {
    if (!groups[group].parts.empty())
      continue;
    llvm::SmallDenseSet<unsigned, 2> reached;
    DenseSet<Operation *> seen;
    SmallVector<Value> worklist = {argument};
    while (!worklist.empty())
      for (OpOperand &use : worklist.pop_back_val().getUses()) {
        Operation *user = step.front().findAncestorOpInBlock(*use.getOwner());
        if (isa<func::ReturnOp>(user)) {
          auto result = resultGroups.find(use.getOperandNumber());
          if (result != resultGroups.end() &&
              !groups[result->second].parts.empty())
            reached.insert(result->second);
        } else if (seen.insert(user).second) {
          for (Value result : user->getResults())
            if (!isNumber(result))
              worklist.push_back(result);
        }
      }
    if (reached.size() == 1)
      targets[group] = *reached.begin();
  }
  auto redirect = [&](unsigned &group) {
    if (auto target = targets.find(group); target != targets.end())
      group = target->second;
  };
  for (auto &entry : groupOf)
    redirect(entry.second);
  for (auto &entry : resultGroups)
    redirect(entry.second);
  for (auto [from, to] : targets) {
    groups[to].stateBytes += groups[from].stateBytes;
    groups[from].stateBytes = groups[from].gradientBytes = 0;
  }
}

/// What each value reaches, from the end of the step to its beginning.
void StepReader::findReach() {
  auto end = cast<func::ReturnOp>(step.front().getTerminator());
  auto join = [](Backward &into, int last, int group) {
    into.last = std::max(into.last, last);
    if (into.group == Backward::none)
      into.group = group;
    else if (group != Backward::none && into.group != group)
      into.group = Backward::several;
  };
  for (OpOperand &operand : end->getOpOperands())
    if (auto found = resultGroups.find(operand.getOperandNumber());
        found != resultGroups.end()) {
      const Group &group = groups[found->second];
      int last = group.parts.empty() ? -1 : int(group.parts.front());
      join(backward[operand.get()], last, found->second);
    }
  for (Operation &op : llvm::reverse(step.front())) {
    if (forward.contains(&op) || isa<func::ReturnOp>(op))
      continue;
    Backward all;
    for (Value value : op.getResults())
      if (auto found = backward.find(value); found != backward.end())
        join(all, found->second.last, found->second.group);
    for (Value value : op.getResults())
      backward[value] = all;
    visitAll(&op, [&](Value read) {
      Operation *producer = read.getDefiningOp();
      if (producer && !isNumber(read) && !forward.contains(producer))
        join(backward[read], all.last, all.group);
    });
  }
}

void StepReader::readBackward(Operation *op) {
  Backward all = backward[op->getResult(0)];
  // A mean over processes is where that is which it is of.
  if (auto mean = dyn_cast<AllReduceOp>(op)) {
    Value of = getSource(mean.getData());
    auto part = partOf.find(of);
    all.part = part == partOf.end() ? std::max(backward.lookup(of).part, 0)
                                    : int(part->second);
    backward[mean.getResult()] = all;
    return;
  }
  int most = INT_MAX, least = all.last;
  bool readsGradient = false, readsOther = false, readsActivation = false;
  SmallVector<unsigned> read;
  int highest = -1, lowest = INT_MAX;
  unsigned numGradients = 0;
  visitAll(op, [&](Value value) {
    Value source = getSource(value);
    if (auto part = partOf.find(source); part != partOf.end()) {
      if (isActivation(source))
        least = std::max(least, int(part->second));
      readsActivation |= isActivation(source);
      readsOther |= isActivation(source) || data.contains(source);
      return;
    }
    llvm::append_range(read, getGroups(value));
    auto found = backward.find(value);
    if (found == backward.end() || found->second.part < 0 || isNumber(value)) {
      readsOther |= data.contains(value) && !isNumber(value);
      return;
    }
    readsGradient = true;
    highest = std::max(highest, found->second.part);
    lowest = std::min(lowest, found->second.part);
    ++numGradients;
    readsOther |= found->second.group == Backward::several;
  });
  if (readsGradient)
    most = highest;
  // A number, such as a norm, is computed where that is which it is of.
  if (all.last < 0)
    least = std::max(least, highest);
  if (all.group >= 0 && readsGradient && !readsOther) {
    // The sum of a parameter's gradients, and its update: at no part's expense.
    all.part = std::max(all.last, 0);
    all.isSum = true;
  } else {
    // A shared parameter is read by the last part that may.
    for (unsigned group : read)
      for (unsigned part : groups[group].parts)
        if (int(part) <= most)
          least = std::max(least, int(part));
    if (all.group >= 0 && groups[all.group].parts.size() > 1 && readsGradient)
      least = most;
    // Gradients that meet pass a cut as one.
    if (numGradients > 1 && !readsActivation && read.empty())
      least = std::max(least, lowest);
    all.part = std::max(std::min(least, most), 0);
  }
  for (Value value : op->getResults())
    backward[value] = all;
}

void StepReader::readBackward() {
  for (Operation &op : step.front()) {
    if (forward.contains(&op) || op.getNumResults() == 0)
      continue;
    bool readsData = false;
    visitAll(&op, [&](Value read) {
      auto found = backward.find(read);
      readsData |= data.contains(read) || activations.contains(read) ||
                   partOf.contains(read) ||
                   (found != backward.end() && found->second.part >= 0);
    });
    if (!readsData)
      continue;
    readBackward(&op);
    const Backward &made = backward[op.getResult(0)];
    if (!made.isSum)
      result.parts[made.part].backward.push_back(getWork(&op));
  }
}

void StepReader::countCuts() {
  result.cuts.resize(result.parts.size() - 1);
  // Changes of the bytes at each cut.
  SmallVector<double> up(result.parts.size() + 1, 0.0), down(up);
  auto add = [](SmallVector<double> &changes, unsigned from, unsigned to,
                double bytes) {
    if (from < to)
      changes[from] += bytes, changes[to] -= bytes;
  };
  DenseMap<Value, std::pair<int, int>> reads; // the first and last part
  DenseSet<Value> saved;
  for (Operation &op : step.front()) {
    if (op.getNumResults() == 0)
      continue;
    int at = -1;
    bool isBackward = false;
    if (auto part = partOf.find(op.getResult(0)); part != partOf.end()) {
      at = part->second;
    } else if (auto found = backward.find(op.getResult(0));
               found != backward.end() && !found->second.isSum) {
      at = found->second.part;
      isBackward = true;
    }
    if (at < 0)
      continue;
    // What only reorders is computed where it is read.
    if (getSource(op.getResult(0)) != op.getResult(0))
      continue;
    visitAll(&op, [&](Value read) {
      Value source = getSource(read);
      if (isNumber(source))
        return;
      auto [it, isNew] = reads.try_emplace(source, at, at);
      it->second.first = std::min(it->second.first, at);
      it->second.second = std::max(it->second.second, at);
      if (isBackward && isActivation(source))
        saved.insert(source);
    });
  }
  for (auto &[value, parts] : reads) {
    double bytes = getBytes(value);
    if (auto part = partOf.find(value); part != partOf.end()) {
      if (!isActivation(value))
        continue;
      add(up, part->second, std::max<int>(parts.second, part->second), bytes);
      if (saved.contains(value))
        result.parts[part->second].savedBytes += bytes;
    } else if (auto found = backward.find(value); found != backward.end() &&
                                                  found->second.part >= 0 &&
                                                  !found->second.isSum) {
      add(down, std::min(parts.first, found->second.part), found->second.part,
          bytes);
    }
  }
  double forwardBytes = 0, backwardBytes = 0;
  for (auto [cut, change, other] : llvm::zip(result.cuts, up, down)) {
    cut.forwardBytes = forwardBytes += change;
    cut.backwardBytes = backwardBytes += other;
  }
}

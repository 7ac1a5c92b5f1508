// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads a step as a chain of parts.

#include "bsr/Analysis/Partition.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/Entries.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Analysis/StepData.h"
#include "bsr/Analysis/Work.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::bsr;

static double getBytes(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.hasStaticShape())
    return 0;
  unsigned bits = type.getElementTypeBitWidth();
  return double(type.getNumElements()) * ((bits + 7) / 8);
}

static int64_t getNumElements(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() ? type.getNumElements() : 1;
}

/// Calls `visit` for what `op` reads, in bodies, too: a gather reads what it
/// looks up there.
static void visitAll(Operation *op, function_ref<void(Value)> visit) {
  op->walk([&](Operation *inner) {
    for (Value read : inner->getOperands())
      if (inner == op || !op->isAncestor(read.getParentRegion()->getParentOp()))
        visit(read);
  });
}

/// `value` without what only reorders, broadcasts or reshapes it.
static Value getSource(Value value) {
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

/// Whether a kernel of its own computes `op`.
static bool hasKernel(Operation *op) {
  return !llvm::is_contained(
      ArrayRef<StringRef>{"elementwise", "copy", "other"}, getWorkKind(op));
}

static Work getWork(Operation *op) {
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

namespace {
/// Parameters with what else is carried for them.
struct Group {
  std::string name;
  double stateBytes = 0, gradientBytes = 0;
  llvm::SmallSetVector<unsigned, 2> parts; ///< that read it
};

/// What is known of a value that is not of the forward part.
struct Backward {
  static constexpr int none = -1, several = -2;
  int part = -1;      ///< where it is computed
  int last = -1;      ///< the last part whose next parameters it reaches
  int group = none;   ///< the only group that it reaches, or `several`
  bool isSum = false; ///< made of a group's gradients alone
};

class Reader {
public:
  explicit Reader(func::FuncOp step) : step(step), data(step) {}

  FailureOr<StepParts> read();
  StepPlaces getPlaces();

private:
  LogicalResult findLoss();
  LogicalResult findSamples();
  void findGroups();
  LogicalResult readForward();
  void mergeStates();
  void findReach();
  void readBackward();
  void readBackward(Operation *op);
  void nameParts();
  void countCuts();

  /// The groups that `value` is made of without data.
  ArrayRef<unsigned> getGroups(Value value);
  /// True if `value` is no activation: a number, or made of parameters alone
  /// or of data alone.
  bool isActivation(Value value) const {
    return activations.contains(value) && !isNumber(value);
  }

  func::FuncOp step;
  StepData data;
  StepParts result;
  Value loss;
  DenseSet<Operation *> forward;
  SmallVector<Group> groups;
  DenseMap<Value, unsigned> groupOf; ///< of arguments
  DenseMap<Value, SmallVector<unsigned>> groupsOf;
  DenseMap<unsigned, unsigned> resultGroups;
  /// Values that depend on data and parameters, and the parts of all that the
  /// forward part computes.
  DenseSet<Value> activations;
  DenseMap<Value, unsigned> partOf;
  DenseMap<Value, Backward> backward;
};
} // namespace

LogicalResult Reader::findLoss() {
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

LogicalResult Reader::findSamples() {
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

void Reader::findGroups() {
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

ArrayRef<unsigned> Reader::getGroups(Value value) {
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

LogicalResult Reader::readForward() {
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

/// Gives state of another shape than its parameter, such as sums of rows, to
/// the only parameter whose next value it reaches.
void Reader::mergeStates() {
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
void Reader::findReach() {
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

void Reader::readBackward(Operation *op) {
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

void Reader::readBackward() {
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

void Reader::countCuts() {
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

/// Gives parts and shared parameters the state that they need and short names.
void Reader::nameParts() {
  for (Group &group : groups) {
    SmallVector<unsigned> parts(group.parts.getArrayRef());
    llvm::sort(parts);
    if (parts.size() > 1) {
      result.shared.push_back(
          {group.name, group.stateBytes, group.gradientBytes, parts});
      continue;
    }
    StepPart &part = result.parts[parts.empty() ? 0 : parts.front()];
    part.stateBytes += group.stateBytes;
    part.gradientBytes += group.gradientBytes;
  }
  // What all names begin with, up to a dot.
  std::string prefix = result.parts.front().name;
  for (const StepPart &part : result.parts)
    while (!prefix.empty() && !StringRef(part.name).starts_with(prefix))
      prefix.pop_back();
  size_t length =
      prefix.rfind('.') == std::string::npos ? 0 : prefix.rfind('.') + 1;
  for (StepPart &part : result.parts)
    part.name.erase(0, length);
  for (SharedState &shared : result.shared)
    if (StringRef(shared.name).starts_with(prefix.substr(0, length)))
      shared.name.erase(0, length);
}

FailureOr<StepParts> Reader::read() {
  if (failed(findLoss()) || failed(findSamples()))
    return failure();
  findGroups();
  if (failed(readForward()))
    return failure();
  mergeStates();
  findReach();
  readBackward();
  countCuts();
  nameParts();
  return std::move(result);
}

/// True of what is computed where it is read rather than sent: numbers that are
/// no tensors, and what only reorders.
static bool isComputedWhereRead(Operation *op) {
  return !llvm::all_of(op->getResultTypes(), llvm::IsaPred<RankedTensorType>) ||
         getSource(op->getResult(0)) != op->getResult(0);
}

StepPlaces Reader::getPlaces() {
  StepPlaces places;
  auto getParts = [&](unsigned group) {
    SmallVector<unsigned, 1> parts(groups[group].parts.begin(),
                                   groups[group].parts.end());
    llvm::sort(parts);
    if (parts.empty())
      parts.push_back(0);
    return parts;
  };
  // A pattern is where its values are, and so is what reads it alone.
  DenseMap<Value, SmallVector<unsigned, 1>> patterns;
  for (auto [argument, group] : groupOf) {
    SmallVector<unsigned, 1> parts = getParts(group);
    unsigned number = cast<BlockArgument>(argument).getArgNumber();
    if (auto pattern = attrs::pattern.ofArg(step, number))
      patterns[step.getArgument(pattern.getInt())] = parts;
    places.arguments[argument] = std::move(parts);
  }
  for (Operation &op : step.front()) {
    if (!op.getNumResults() || isComputedWhereRead(&op))
      continue;
    Value first = op.getResult(0);
    if (auto mean = dyn_cast<AllReduceOp>(op)) {
      // Where that is which it is of, a number, too.
      Operation *made = getSource(mean.getData()).getDefiningOp();
      if (auto place = places.operations.find(made);
          place != places.operations.end())
        places.operations[&op] = SmallVector<unsigned, 1>(place->second);
    } else if (auto part = partOf.find(first); part != partOf.end()) {
      // What is made of data alone, all have.
      if (activations.contains(first))
        places.operations[&op] = {part->second};
    } else if (auto found = backward.find(first);
               found != backward.end() && found->second.part >= 0) {
      if (found->second.isSum)
        places.operations[&op] = getParts(found->second.group);
      else
        places.operations[&op] = {unsigned(found->second.part)};
    } else if (!getGroups(first).empty()) {
      // What is made of parameters alone is where all of these are.
      SmallVector<unsigned, 1> parts = getParts(getGroups(first).front());
      for (unsigned group : getGroups(first))
        llvm::erase_if(parts, [&](unsigned part) {
          return !llvm::is_contained(getParts(group), part);
        });
      if (!parts.empty())
        places.operations[&op] = parts;
    } else {
      for (Value operand : op.getOperands())
        if (auto parts = patterns.find(operand); parts != patterns.end())
          places.operations[&op] = parts->second;
    }
  }
  return places;
}

FailureOr<StepParts> bsr::readParts(func::FuncOp step) {
  StepPlaces places;
  return readParts(step, places);
}

FailureOr<StepParts> bsr::readParts(func::FuncOp step, StepPlaces &places) {
  if (failed(getReturn(step)))
    return failure();
  Reader reader(step);
  FailureOr<StepParts> parts = reader.read();
  if (succeeded(parts))
    places = reader.getPlaces();
  return parts;
}

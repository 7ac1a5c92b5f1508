// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which operations of a step one kernel computes.

#include "FusionGroups.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Windows.h"
#include "bsr/Analysis/Work.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

int64_t FusionGroups::getTime(Value value) const {
  Operation *op = value.getDefiningOp();
  return op ? times.lookup(op) : -1;
}

void FusionGroups::collect(const Group &group, SetVector<Value> &inputs,
                           SetVector<Operation *> &members) const {
  SmallVector<Operation *> sorted;
  DenseSet<Operation *> visited;
  auto visit = [&](auto &self, Operation *op) -> void {
    if (!visited.insert(op).second)
      return;
    auto visitValue = [&](Value value) {
      if (value.getParentRegion()->getParentOp() != op->getParentOp())
        return;
      Operation *producer = value.getDefiningOp();
      if (producer &&
          (llvm::is_contained(group, producer) || roots.isInlined(producer)))
        self(self, producer);
      else
        inputs.insert(value);
    };
    for (auto [number, operand] : llvm::enumerate(op->getOperands())) {
      // An init that is not read is not an input.
      auto generic = dyn_cast<linalg::GenericOp>(op);
      if (generic && generic.isDpsInit(&op->getOpOperand(number)) &&
          !generic.payloadUsesValueFromOperand(&op->getOpOperand(number)) &&
          !isa_and_nonnull<tensor::EmptyOp>(operand.getDefiningOp()))
        continue;
      // The offset of a slice is an input: see loosenSlices.
      if (isa<tensor::ExtractSliceOp>(op) && operand.getType().isIndex())
        inputs.insert(operand);
      else
        visitValue(operand);
    }
    op->walk([&](Operation *inner) {
      if (inner != op)
        for (Value operand : inner->getOperands())
          if (operand.getParentRegion() == op->getParentRegion())
            visitValue(operand);
    });
    members.insert(op);
  };
  for (Operation *root : group)
    visit(visit, root);
}

/// True if `input` has an element for each point of `root`.
static bool isLarge(Value input, Operation *root) {
  auto type = dyn_cast<RankedTensorType>(input.getType());
  auto generic = dyn_cast<linalg::GenericOp>(root);
  return type && generic && type.getNumElements() >= getNumPoints(generic);
}

/// True if `root` makes the next value of an argument that it reads: an
/// element-wise update that happens where the argument lies, and therefore in a
/// kernel that writes nothing before.
static bool isUpdate(Operation *root, const SetVector<Value> &inputs) {
  auto step = cast<func::FuncOp>(root->getParentOp());
  Operation *terminator = root->getBlock()->getTerminator();
  return llvm::any_of(inputs, [&](Value input) {
    auto argument = dyn_cast<BlockArgument>(input);
    if (!argument)
      return false;
    auto next = attrs::result.ofArg(step, argument.getArgNumber());
    return next &&
           terminator->getOperand(next.getInt()).getDefiningOp() == root;
  });
}

bool FusionGroups::join(size_t number, Operation *root,
                        const SetVector<Value> &inputs) {
  Group &group = groups[number];
  State &state = states[number];
  bool isOneNest = state.isOneNest && group.size() < costs.maxOutputs &&
                   isOnePointwiseNest(group.front(), root);
  bool isChain =
      state.chain && group.size() < costs.maxRoots && !isUpdate(root, inputs) &&
      state.chain->add(cast<linalg::GenericOp>(root),
                       [&](Value value) { return roots.isLeaf(value); });
  if (!isOneNest && !isChain)
    return false;
  if (!isChain)
    state.chain.reset();
  state.isOneNest = isOneNest;
  group.push_back(root);
  return true;
}

/// Lets `root` follow the product that group `number` is, together with the
/// groups that make what is not there yet when the product runs.
bool FusionGroups::follow(size_t number, Operation *root,
                          const SetVector<Value> &inputs) {
  State &state = states[number];
  SetVector<size_t> late;
  for (Value input : inputs) {
    if (getTime(input) <= state.time)
      continue;
    auto made = groupOf.find(input.getDefiningOp());
    if (made == groupOf.end() || !states[made->second].chain ||
        isProduct(made->second))
      return false;
    late.insert(made->second);
  }
  Group followers;
  for (size_t other : late) {
    SetVector<Value> needed;
    SetVector<Operation *> members;
    collect(groups[other], needed, members);
    if (llvm::any_of(needed,
                     [&](Value value) { return getTime(value) > state.time; }))
      return false;
    llvm::append_range(followers, groups[other]);
  }
  followers.push_back(root);
  // Behind the stored blocks of a gradient, updates happen where the argument
  // lies: sums are taken of activations before.
  if (groups[number].size() + followers.size() > costs.maxRoots ||
      (isUpdate(root, inputs) && !isa<SDDMMOp>(groups[number].front())))
    return false;
  ChainMatcher chain = *state.chain;
  for (Operation *follower : followers)
    if (!chain.add(cast<linalg::GenericOp>(follower),
                   [&](Value value) { return roots.isLeaf(value); }))
      return false;
  state.chain = std::move(chain);
  llvm::append_range(groups[number], followers);
  for (size_t other : late)
    groups[other].clear();
  for (Operation *follower : followers) {
    times[follower] = state.time;
    groupOf[follower] = number;
  }
  return true;
}

/// Says why `root` joins none of the groups that make `inputs`, the last of
/// which is there at `ready`.
void FusionGroups::remarkAlone(Operation *root, const SetVector<Value> &inputs,
                               int64_t ready) const {
  std::optional<size_t> last;
  for (Value input : inputs) {
    auto made = groupOf.find(input.getDefiningOp());
    if (made != groupOf.end())
      last = std::max(last.value_or(0), made->second);
  }
  if (!last)
    return;
  PassRemark remark = PassRemark::missed("bsr-cluster", "NotFused", root);
  if (!remark)
    return;
  const Group &group = groups[*last];
  StringRef reason =
      *last < firstOpen            ? "most memory is live between them"
      : states[*last].time < ready ? "it reads what is made after them as well"
      : group.size() >= costs.maxRoots ? "a kernel computes no more than these"
      : isUpdate(root, inputs)
          ? "it updates an argument where it lies, which they may read"
          : "no work item can compute what it reads of them";
  remark.add("Operation", root->getName())
      .add("Kind", getWorkKind(root))
      .add("Group", int64_t(group.size()))
      .add("Reason", reason);
}

/// Says why windows are copied, if `root` makes them.
static void remarkWindows(Operation *root) {
  auto concat = dyn_cast<tensor::ConcatOp>(root);
  if (concat && Windows::get(concat))
    PassRemark::missed("bsr-cluster", "WindowsCopied", root)
        .add("Reason",
             areReadInLine(root)
                 ? "the target has no vectors along tokens"
                 : "what is no product of a weight in blocks reads them");
}

/// True if `root` sums up windows that a product makes: that is a kernel, with
/// loops of its own.
static bool isSumOfProduct(Operation *root, const Materialization &roots) {
  std::optional<SummedWindows> windows = SummedWindows::get(root);
  return windows && roots.isInlined(windows->product);
}

/// True if `root`, and nothing else, reads the product that group `number` is,
/// the last one, and transposes it: then it needs no memory, at the peak of
/// memory either.
bool FusionGroups::replacesProduct(size_t number, Operation *root) const {
  const Group &group = groups[number];
  if (number + 1 != groups.size() || group.size() != 1 ||
      !group.front()->hasOneUse() ||
      !llvm::is_contained(group.front()->getUsers(), root))
    return false;
  ChainMatcher chain = *states[number].chain;
  return chain.add(cast<linalg::GenericOp>(root), [&](Value value) {
    return roots.isLeaf(value);
  }) && chain.hasTransposed();
}

/// Lets `root` join a group that makes or reads one of its inputs: a product
/// that it can follow, or else the last one that runs when all of the inputs
/// are there.
std::optional<size_t> FusionGroups::findGroup(Operation *root,
                                              const SetVector<Value> &inputs) {
  if (!isChainable(root) || isSumOfProduct(root, roots) ||
      !decide("bsr-fuse", root))
    return std::nullopt;
  int64_t ready = -1;
  SmallVector<size_t> candidates;
  for (Value input : inputs) {
    ready = std::max(ready, getTime(input));
    auto made = groupOf.find(input.getDefiningOp());
    if (made != groupOf.end())
      candidates.push_back(made->second);
  }
  llvm::sort(candidates, std::greater<>());
  for (size_t number : candidates)
    if (isProduct(number) && states[number].chain &&
        (number >= firstOpen || replacesProduct(number, root)) &&
        follow(number, root, inputs))
      return number;
  for (Value input : inputs)
    if (isLarge(input, root))
      llvm::append_range(candidates, readers.lookup(input));
  llvm::sort(candidates, std::greater<>());
  candidates.erase(llvm::unique(candidates), candidates.end());
  auto joined = llvm::find_if(candidates, [&](size_t number) {
    return number >= firstOpen && states[number].time >= ready &&
           !groups[number].empty() && !isProduct(number) &&
           join(number, root, inputs);
  });
  if (joined != candidates.end())
    return *joined;
  remarkAlone(root, inputs, ready);
  return std::nullopt;
}

void FusionGroups::group(Operation *root) {
  remarkWindows(root);
  SetVector<Value> inputs;
  SetVector<Operation *> members;
  collect({root}, inputs, members);
  std::optional<size_t> joined = findGroup(root, inputs);
  size_t number = joined.value_or(groups.size());
  if (!joined) {
    groups.push_back({root});
    bool isAlone = isSumOfProduct(root, roots);
    states.push_back(
        {++now, !isAlone && isOnePointwiseNest(root, root), std::nullopt});
    if (!isAlone && (target.acceptsEpilogue(root) ||
                     (isChainable(root) && !isUpdate(root, inputs))))
      states.back().chain = ChainMatcher::match(
          {root}, [&](Value value) { return roots.isLeaf(value); }, target);
  }
  times[root] = states[number].time;
  groupOf[root] = number;
  for (Value input : inputs)
    readers[input].push_back(number);
}

bool FusionGroups::isUsedOutside(Value value, const Group &group) const {
  SetVector<Value> reached;
  reached.insert(value);
  for (size_t next = 0; next != reached.size(); ++next) {
    for (Operation *user : reached[next].getUsers()) {
      while (user->getBlock() != value.getParentBlock())
        user = user->getParentOp();
      if (llvm::is_contained(group, user))
        continue;
      if (!roots.isInlined(user))
        return true;
      reached.insert(user->result_begin(), user->result_end());
    }
  }
  return false;
}

/// True if computing `root` again reads no more than reading its result would.
bool FusionGroups::isCheaperThanMemory(Operation *root,
                                       const Group &group) const {
  SetVector<Value> inputs;
  SetVector<Operation *> members;
  collect({root}, inputs, members);
  return roots.getCost(root) < costs.stored &&
         llvm::count_if(
             inputs, [&](Value input) { return isLarge(input, root); }) <= 1 &&
         llvm::none_of(inputs, [&](Value input) {
           return isLarge(input, root) &&
                  llvm::is_contained(group, input.getDefiningOp());
         });
}

FusionGroups::Kept FusionGroups::getKept(size_t number) const {
  const Group &group = groups[number];
  const State &state = states[number];
  bool isChain = group.size() > 1 && !state.isOneNest;
  DenseSet<Value> stored;
  if (isChain && !target.keepsInRegisters())
    stored = state.chain->getStored();
  Kept kept;
  for (Operation *root : group)
    for (Value result : root->getResults()) {
      if (isUsedOutside(result, group))
        kept.used.push_back(result);
      else if (stored.contains(result) && isPointwise(root) &&
               !isCheaperThanMemory(root, group))
        kept.stored.push_back(root);
    }
  return kept;
}

FusionGroups::FusionGroups(Block &block, TargetAttrInterface target)
    : target(target), costs(target.getCosts()), roots(block, costs) {
  for (Operation &op : block.without_terminator()) {
    // What comes after the peak of memory is not computed before it.
    if (attrs::peak.isOn(&op))
      firstOpen = groups.size();
    if (roots.contains(&op)) {
      group(&op);
      continue;
    }
    if (!roots.isInlined(&op)) {
      times[&op] = ++now;
      continue;
    }
    // What stays outside as well is there when its operands are.
    int64_t time = -1;
    for (Value operand : op.getOperands())
      time = std::max(time, getTime(operand));
    times[&op] = time;
  }
}

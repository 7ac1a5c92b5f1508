// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which arguments of a step follow a weight: its moments, copies and masks.

#include "WeightState.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/EntryMaps.h"
#include "bsr/Analysis/Slices.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::bsr;

StringAttr bsr::getArgName(func::FuncOp func, unsigned arg) {
  return attrs::name.ofArg(func, arg);
}

bool bsr::hasRole(func::FuncOp func, unsigned arg, StringRef role) {
  auto attr = attrs::role.ofArg(func, arg);
  return attr && attr == role;
}

/// The value of argument `arg` after the step: what carries it, or itself.
static Value getNext(func::FuncOp func, unsigned arg) {
  auto result = attrs::result.ofArg(func, arg);
  if (!result)
    return func.getArgument(arg);
  return func.getBody().front().getTerminator()->getOperand(result.getInt());
}

void bsr::walkEntries(Value root,
                      function_ref<void(Value, bool isSource)> visit) {
  auto type = cast<RankedTensorType>(root.getType());
  Entries whole = Entries::getWhole(type.getShape());
  llvm::MapVector<Value, SmallVector<Entries, 1>> known;
  SmallVector<std::pair<Value, Entries>> worklist;
  auto reach = [&](Value value, const Entries &entries) {
    auto &seen = known[value];
    if (seen.size() > 2 || llvm::is_contained(seen, entries))
      return;
    seen.push_back(entries);
    worklist.push_back({value, entries});
  };
  reach(root, whole);
  DenseSet<Value> visited;
  while (!worklist.empty()) {
    auto [value, entries] = worklist.pop_back_val();
    auto result = dyn_cast<OpResult>(value);
    bool isSource = !result || !isEntryWise(result.getOwner());
    if (entries.offset == 0 && entries.strides == whole.strides &&
        visited.insert(value).second)
      visit(value, isSource);
    if (!isSource)
      visitOperands(result.getOwner(), result.getResultNumber(), entries,
                    [&](OpOperand &operand, const Entries &read) {
                      reach(operand.get(), read);
                    });
  }
}

bool bsr::isKept(func::FuncOp func, unsigned arg,
                 function_ref<bool(unsigned)> isMask) {
  auto type = dyn_cast<RankedTensorType>(func.getArgument(arg).getType());
  return type && isa<FloatType>(type.getElementType()) &&
         getArgName(func, arg) &&
         (attrs::result.ofArg(func, arg) || hasRole(func, arg, "state")) &&
         !hasRole(func, arg, "param") && !isMask(arg) &&
         !attrs::mask.ofArg(func, arg);
}

bool bsr::isState(func::FuncOp func, unsigned arg, unsigned weight,
                  function_ref<bool(unsigned)> isMask) {
  auto type = dyn_cast<RankedTensorType>(func.getArgument(arg).getType());
  auto weightType = cast<RankedTensorType>(func.getArgument(weight).getType());
  return arg != weight && type && type.getShape() == weightType.getShape() &&
         isKept(func, arg, isMask);
}

SmallVector<unsigned> bsr::getMoments(func::FuncOp func, unsigned weight,
                                      function_ref<bool(unsigned)> isMask) {
  SmallVector<unsigned> moments;
  if (!attrs::result.ofArg(func, weight))
    return moments;
  walkEntries(getNext(func, weight), [&](Value value, bool) {
    auto arg = dyn_cast<BlockArgument>(value);
    if (arg && arg.getOwner() == &func.getBody().front() &&
        attrs::result.ofArg(func, arg.getArgNumber()) &&
        isState(func, arg.getArgNumber(), weight, isMask))
      moments.push_back(arg.getArgNumber());
  });
  return moments;
}

/// True if something else than the distance to `weight` is computed from
/// argument `copy`, which the step does not change: entry-wise functions of the
/// two are only summed up.
static bool isOnlyCompared(func::FuncOp func, unsigned copy, unsigned weight) {
  SmallVector<Value> worklist = {func.getArgument(copy)};
  DenseSet<Value> seen;
  bool isCompared = false;
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    for (Operation *user : value.getUsers()) {
      if (isa<func::ReturnOp>(user) && value == func.getArgument(copy))
        continue;
      auto op = dyn_cast<linalg::LinalgOp>(user);
      if (op && op.getNumReductionLoops() && op.getNumDpsInputs() == 1)
        continue;
      if (!isEntryWise(user) || user->getNumResults() != 1)
        return false;
      Value result = user->getResult(0);
      bool readsWeight = false;
      walkEntries(result, [&](Value read, bool) {
        readsWeight |= read == func.getArgument(weight);
      });
      if (!readsWeight)
        return false;
      isCompared = true;
      if (seen.insert(result).second)
        worklist.push_back(result);
    }
  }
  return isCompared;
}

bool bsr::isCopy(func::FuncOp func, unsigned copy, unsigned weight,
                 ArrayRef<unsigned> moments) {
  Value next = getNext(func, copy);
  if (next == func.getArgument(copy))
    return isOnlyCompared(func, copy, weight);
  DenseSet<Value> known;
  if (attrs::result.ofArg(func, weight))
    walkEntries(getNext(func, weight),
                [&](Value value, bool) { known.insert(value); });
  bool readsWeight = false, readsOther = false;
  walkEntries(next, [&](Value value, bool isSource) {
    auto arg = dyn_cast<BlockArgument>(value);
    if (!isSource || known.contains(value)) {
      readsWeight |=
          value == func.getArgument(weight) || value == getNext(func, weight);
      return;
    }
    readsWeight |= value == func.getArgument(weight);
    if (Operation *op = value.getDefiningOp();
        isa_and_nonnull<tensor::EmptyOp>(op) ||
        matchPattern(value, m_Constant()))
      return;
    readsOther |=
        !arg || (arg.getArgNumber() != copy && arg.getArgNumber() != weight &&
                 !llvm::is_contained(moments, arg.getArgNumber()));
  });
  return readsWeight && !readsOther;
}

/// True if the next value of argument `weight` has entries that depend on it by
/// more than entries: it is trained, and no moment.
static bool isTrained(func::FuncOp func, unsigned weight) {
  SmallVector<Operation *> users(func.getArgument(weight).getUsers());
  DenseSet<Operation *> dependents = getDependents(users);
  dependents.insert(users.begin(), users.end());
  bool found = false;
  walkEntries(getNext(func, weight), [&](Value value, bool isSource) {
    found |= isSource && dependents.contains(value.getDefiningOp());
  });
  return found;
}

std::optional<unsigned> bsr::findCopied(func::FuncOp func, unsigned copy,
                                        ArrayRef<unsigned> weights,
                                        function_ref<bool(unsigned)> isMask) {
  auto type = dyn_cast<RankedTensorType>(func.getArgument(copy).getType());
  Value next = getNext(func, copy);
  if (!type || !type.hasStaticShape() || next == func.getArgument(copy))
    return std::nullopt;
  DenseSet<Value> read;
  walkEntries(next, [&](Value value, bool) { read.insert(value); });
  for (unsigned weight : weights) {
    auto weightType =
        dyn_cast<RankedTensorType>(func.getArgumentTypes()[weight]);
    if (weight != copy && weightType &&
        weightType.getShape() == type.getShape() &&
        (read.contains(func.getArgument(weight)) ||
         read.contains(getNext(func, weight))) &&
        isCopy(func, copy, weight, getMoments(func, weight, isMask)) &&
        isTrained(func, weight))
      return weight;
  }
  return std::nullopt;
}

llvm::MapVector<BlockArgument, bool> bsr::getMasked(BlockArgument mask) {
  llvm::MapVector<BlockArgument, bool> masked;
  SmallVector<Value> worklist = {mask};
  DenseSet<Value> seen = {mask};
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    SmallVector<std::pair<BlockArgument, bool>> read;
    bool swapped = false;
    walkElementWise(value, [&](Value source, bool transposed) {
      source = getViewed(source);
      if (source == mask)
        swapped = transposed;
      else if (auto argument = dyn_cast<BlockArgument>(source))
        read.push_back({argument, transposed});
    });
    for (auto [argument, transposed] : read)
      masked.insert({argument, transposed != swapped});
    for (Operation *user : value.getUsers()) {
      auto op = dyn_cast<linalg::LinalgOp>(user);
      if ((op && isElementWise(op)) || isView(user))
        for (Value result : user->getResults())
          if (seen.insert(result).second)
            worklist.push_back(result);
    }
  }
  return masked;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What may be a gradient of a weight, and is not known to be one.

#include "bsr/Analysis/Stripped.h"
#include "bsr/Gradients/HiddenGradients.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::bsr;

/// What reads the places of `forward`, or what is made of integers alone and of
/// them: places in a table with a copy for each example, matrices of ones
/// there.
static llvm::SetVector<Operation *>
findReadersOfPlaces(const Forward &forward) {
  llvm::SetVector<Operation *> readers;
  llvm::SetVector<Value> places;
  for (const Factor &factor : forward.factors)
    if (factor.isPlace)
      places.insert(factor.value);
  for (unsigned i = 0; i != places.size(); ++i)
    for (Operation *user : places[i].getUsers()) {
      readers.insert(user);
      auto op = dyn_cast<linalg::LinalgOp>(user);
      bool isOfIntegers =
          op && !op.getNumReductionLoops() &&
          llvm::all_of(op.getDpsInputs(), [](Value input) {
            return getElementTypeOrSelf(input.getType()).isIntOrIndex();
          });
      for (Value result : user->getResults())
        if (isOfIntegers ||
            getElementTypeOrSelf(result.getType()).isIntOrIndex())
          places.insert(result);
    }
  return readers;
}

SmallVector<Operation *>
HiddenGradients::findLookUps(const Space &space, const Forward &forward,
                             ArrayRef<Value> known) const {
  SmallVector<Operation *> found;
  int64_t rows = space.shape[0], cols = space.shape[1], count = rows * cols;
  for (Operation *op : findReadersOfPlaces(forward)) {
    if (op->getNumResults() != 1 || !forward.after.contains(op) ||
        spaces.contains(op->getResult(0)) ||
        llvm::is_contained(known, op->getResult(0)))
      continue;
    auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    if (type && isa<FloatType>(type.getElementType()) &&
        llvm::is_contained(type.getShape(), cols) &&
        llvm::any_of(type.getShape(),
                     [&](int64_t extent) { return extent % rows == 0; }) &&
        type.getNumElements() % count == 0 &&
        isUsedAsGradient(op->getResult(0), count, forward))
      found.push_back(op);
  }
  return found;
}

/// True if a next value of the step that is more than a number depends on `op`.
static bool reachesNextValues(func::FuncOp func, Operation *op) {
  DenseSet<Operation *> dependents = getDependents(op);
  Operation *terminator = func.getBody().front().getTerminator();
  return llvm::any_of(terminator->getOperands(), [&](Value next) {
    return !isNumber(next) && dependents.contains(next.getDefiningOp());
  });
}

/// True if `value` is a function, entry by entry, of what a space has and is
/// more than a function of the weight: of a gradient, as its squares are.
static bool isOfSpace(Value value, const Spaces &spaces,
                      const Forward &forward) {
  constexpr unsigned most = 16;
  llvm::SetVector<Value> values;
  values.insert(value);
  for (unsigned i = 0; i != std::min<size_t>(values.size(), most); ++i) {
    if (forward.values.contains(values[i]) &&
        !forward.activations.contains(values[i]))
      continue;
    if (spaces.contains(values[i]))
      return true;
    Operation *op = values[i].getDefiningOp();
    if (op && isEntryWise(op))
      for (Value read : op->getOperands())
        if (!isNumber(read))
          values.insert(read);
  }
  return false;
}

/// True if `value` is a function, entry by entry and summed over examples, of a
/// product that goes back through one of the weight: it multiplies a factor
/// with something else that depends on that product.
static bool goesBack(Value value, const Forward &forward) {
  constexpr unsigned most = 16;
  llvm::SetVector<Value> values;
  values.insert(value);
  for (unsigned i = 0; i != std::min<size_t>(values.size(), most); ++i) {
    Operation *op = values[i].getDefiningOp();
    if (!op || forward.values.contains(values[i]) ||
        !forward.after.contains(op))
      continue;
    auto sum = dyn_cast<linalg::LinalgOp>(op);
    bool isSum = sum && sum.getNumReductionLoops();
    if (isSum && sum.getNumDpsInputs() > 1) {
      bool isForward = llvm::any_of(op->getOperands(), [&](Value read) {
        return forward.values.contains(strip(read).value);
      });
      if (!isForward && forward.readsFactor(op, 0))
        return true;
    } else if (isSum || isEntryWise(op)) {
      for (Value read : op->getOperands())
        if (!isNumber(read))
          values.insert(read);
    }
  }
  return false;
}

SmallVector<Operation *>
HiddenGradients::findMixtures(const BoundWeight &weight,
                              const Forward &forward) const {
  SmallVector<Operation *> mixtures =
      llvm::filter_to_vector(forward.mixtures, [&](Operation *op) {
        return llvm::none_of(op->getResults(), [&](Value result) {
          return spaces.contains(result);
        });
      });
  if (mixtures.empty())
    return mixtures;
  // Data that depends on the weight is made of its gradients.
  DenseSet<Operation *> behind =
      getDependents(ToDenseOp(weight.dense).getOperation());
  llvm::erase_if(mixtures, [&](Operation *op) {
    return llvm::any_of(op->getOperands(), [&](Value read) {
      return behind.contains(read.getDefiningOp()) &&
             !forward.values.contains(read);
    });
  });
  return mixtures;
}

SmallVector<Operation *>
HiddenGradients::findCombined(const BoundWeight &weight, const Space &space,
                              const Forward &forward) const {
  SmallVector<Operation *> found;
  SmallVector<Operation *> mixtures = findMixtures(weight, forward);
  if (mixtures.empty())
    return found;
  DenseSet<Operation *> after = getDependents(mixtures);
  int64_t count = space.shape[0] * space.shape[1];
  // One after the other may be of one gradient.
  for (linalg::LinalgOp op : sums) {
    Value result = op->getResult(0), input = op.getDpsInputs()[0];
    if (!after.contains(op) || spaces.contains(result) ||
        isOfSpace(input, spaces, forward))
      continue;
    bool isOfCopies = countElements(result) == count &&
                      countElements(input) > count &&
                      isUsedAsGradient(result, count, forward);
    bool isNorm = isNumber(result) && countElements(input) == count &&
                  (reachesNextValues(func, op) || goesBack(input, forward));
    if (isOfCopies || isNorm)
      found.push_back(op);
  }
  return found;
}

/// What `ops` depend on.
static DenseSet<Operation *> getPrecedents(ArrayRef<Operation *> ops) {
  DenseSet<Operation *> precedents;
  SmallVector<Operation *> worklist(ops);
  auto reach = [&](Value value) {
    if (Operation *op = value.getDefiningOp();
        op && precedents.insert(op).second)
      worklist.push_back(op);
  };
  while (!worklist.empty())
    visitReads(worklist.pop_back_val(), reach);
  return precedents;
}

Operation *HiddenGradients::findUnknown(const BoundWeight &weight,
                                        const Space &space,
                                        const Forward &forward) const {
  // Of many tokens, all that is computed may be gradients of a vector by shape.
  bool isVector = llvm::is_contained(space.shape, 1);
  Value dense = ToDenseOp(weight.dense).getDense();
  int64_t count = countElements(dense);
  // A product may be written as one of elements and a sum.
  Dependents behindMultiplied(
      llvm::filter_to_vector(forward.mixtures, [](Operation *op) {
        auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
        return linalgOp &&
               !linalgOp.getBlock()->getOps<arith::MulFOp>().empty();
      }));
  SmallVector<Operation *> updates;
  for (Value source : space.sources)
    if (Operation *op = source.getDefiningOp())
      updates.push_back(op);
  auto mayBe = [&](Value result) {
    return !spaces.contains(result) && !forward.values.contains(result) &&
           mayHaveEntriesOf(result, dense) &&
           isUsedAsGradient(result, count, forward) &&
           !isOfSpace(result, spaces, forward);
  };
  // By size: else all operations would be looked at for each weight.
  SmallVector<std::pair<unsigned, linalg::LinalgOp>> candidates;
  for (const auto &[size, ops] : bySize)
    if (isVector ? size == count : size % count == 0)
      for (auto [number, op] : ops)
        if (mayBe(op->getResult(0)))
          candidates.push_back({number, op});
  llvm::sort(candidates, llvm::less_first());
  std::optional<DenseSet<Operation *>> before; // Few steps ask.
  for (linalg::LinalgOp op : llvm::make_second_range(candidates)) {
    if (!forward.after.contains(op) && !behindMultiplied.contains(op))
      continue;
    if (!before)
      before = getPrecedents(updates);
    if (before->contains(op))
      return op;
  }
  return nullptr;
}

SmallVector<Operation *>
HiddenGradients::findCandidates(const BoundWeight &weight,
                                const Forward &forward) const {
  SmallVector<Operation *> candidates;
  auto type = cast<RankedTensorType>(ToDenseOp(weight.dense).getType());
  SmallVector<int64_t> shape(type.getShape()), swapped(llvm::reverse(shape));
  DenseSet<Operation *> before = getPrecedents(forward.products);
  func::FuncOp func = this->func;
  func.walk([&](linalg::LinalgOp op) {
    if (op.getNumReductionLoops() == 0 || op->getNumResults() != 1 ||
        before.contains(op) || spaces.contains(op->getResult(0)))
      return;
    auto result = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    if (!result ||
        (result.getShape() != ArrayRef(shape) &&
         result.getShape() != ArrayRef(swapped)) ||
        llvm::any_of(op->getOperands(), [&](Value operand) {
          return forward.values.contains(operand);
        }))
      return;
    SmallVector<Value> worklist = {op->getResult(0)};
    DenseSet<Value> seen;
    SmallVector<Operation *> numbers;
    while (!worklist.empty())
      for (Operation *user : worklist.pop_back_val().getUsers()) {
        if (llvm::all_of(user->getResults(), isNumber) &&
            user->getNumResults()) {
          numbers.push_back(user);
          continue;
        }
        if (!isEntryWise(user) || !isa<linalg::LinalgOp>(user))
          return;
        for (Value next : user->getResults())
          if (seen.insert(next).second)
            worklist.push_back(next);
      }
    DenseSet<Operation *> dependents = getDependents(numbers);
    if (llvm::any_of(func.getBody().front().getTerminator()->getOperands(),
                     [&](Value next) {
                       return !isNumber(next) && next.getDefiningOp() &&
                              dependents.contains(next.getDefiningOp());
                     }))
      candidates.push_back(op);
  });
  return candidates;
}

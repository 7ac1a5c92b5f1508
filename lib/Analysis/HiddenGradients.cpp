// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients that no entry-wise way leads from to a next value.

#include "bsr/Analysis/HiddenGradients.h"
#include "bsr/Analysis/Entries.h"
#include "bsr/Analysis/Stripped.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::bsr;

HiddenGradients::HiddenGradients(func::FuncOp func, const Spaces &spaces)
    : func(func), spaces(spaces) {
  func.walk([&](linalg::LinalgOp op) {
    if (op.getNumDpsInputs() < 2)
      return;
    for (OpOperand *operand : op.getDpsInputOperands()) {
      if (isNumber(operand->get()))
        continue;
      Stripped stripped = strip(operand->get());
      readers[stripped.value].push_back({operand, stripped.dims});
    }
  });
}

/// True if `operand`, stripped, is a factor of `forward`, and its dimension
/// `dim` goes along the weight's rows (`isRow`) or its columns.
static bool isFactor(const Forward &forward, OpOperand &operand, int64_t dim,
                     bool isRow) {
  Stripped stripped = strip(operand.get());
  return llvm::any_of(forward.factors, [&](const Factor &factor) {
    return factor.value == stripped.value && factor.isRow == isRow &&
           factor.dim >= 0 && factor.dim == stripped.dims[dim];
  });
}

std::optional<HiddenGradients::Match>
HiddenGradients::match(const Space &space, const Forward &forward,
                       const Factor &factor, OpOperand &operand,
                       ArrayRef<int64_t> dims) const {
  auto op = cast<linalg::LinalgOp>(operand.getOwner());
  auto place = llvm::find(dims, factor.dim);
  if (factor.dim < 0 || place == dims.end() || op->getNumResults() != 1 ||
      op.getNumDpsInputs() != 2)
    return std::nullopt;
  OpOperand &other =
      *op.getDpsInputOperand(op.getDpsInputOperand(0) == &operand ? 1 : 0);
  AffineMap map = op.getMatchingIndexingMap(&operand),
            otherMap = op.getMatchingIndexingMap(&other),
            resultMap = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  auto at = resultMap.getResultPosition(map.getResult(place - dims.begin()));
  if (!at || forward.values.contains(strip(other.get()).value))
    return std::nullopt;

  // What the weight's other dimension is; dimensions that both have are those
  // of examples.
  std::optional<unsigned> across;
  std::optional<int64_t> acrossOfOther;
  for (auto [dim, expr] : llvm::enumerate(resultMap.getResults())) {
    if (dim == *at)
      continue;
    auto inOther = otherMap.getResultPosition(expr);
    if (!map.getResultPosition(expr) && inOther && !across) {
      across = dim;
      acrossOfOther = *inOther;
    } else if (type.getDimSize(dim) != 1 &&
               (!map.getResultPosition(expr) || !inOther)) {
      return std::nullopt;
    }
  }
  int64_t rows = space.shape[0], cols = space.shape[1];
  if (!across || type.getDimSize(*at) != (factor.isRow ? rows : cols) ||
      type.getDimSize(*across) != (factor.isRow ? cols : rows))
    return std::nullopt;
  // Another product of what the weight is multiplied with, such as a square.
  if (isFactor(forward, other, *acrossOfOther, factor.isRow))
    return std::nullopt;

  Match found;
  found.isOfBoth = isFactor(forward, other, *acrossOfOther, !factor.isRow);
  found.entries.sizes.assign(type.getShape().begin(), type.getShape().end());
  found.entries.starts.assign(type.getRank(), 0);
  found.entries.strides.assign(type.getRank(), 0);
  auto setStride = [&](unsigned dim, bool isRow) {
    if (type.getDimSize(dim) != 1)
      found.entries.strides[dim] = isRow ? cols : 1;
  };
  setStride(*at, factor.isRow);
  setStride(*across, !factor.isRow);
  return found;
}

bool HiddenGradients::isProduct(Value value, const Space &space,
                                const Forward &forward) const {
  return llvm::any_of(forward.factors, [&](const Factor &factor) {
    return llvm::any_of(readers.lookup(factor.value), [&](const auto &reader) {
      auto &[operand, dims] = reader;
      if (operand->getOwner() != value.getDefiningOp())
        return false;
      auto found = match(space, forward, factor, *operand, dims);
      return found && found->isOfBoth;
    });
  });
}

/// True if all that the step makes of `value` is in `space`, as of gradients of
/// examples that are only added up.
static bool isOnlySummed(Value value, const Space &space) {
  SmallVector<Value> worklist = {value};
  DenseSet<Value> seen = {value};
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val().getUsers()) {
      bool isInside = llvm::all_of(user->getResults(), [&](Value result) {
        return space.entries.contains(result);
      });
      if (isInside && user->getNumResults())
        continue;
      if (user->getNumResults() != 1 ||
          strip(user->getResult(0)).value != strip(value).value)
        return false;
      if (seen.insert(user->getResult(0)).second)
        worklist.push_back(user->getResult(0));
    }
  return true;
}

/// True if the step uses `value` as it uses gradients: it sums functions of its
/// entries up, or adds them to the weight's.
static bool isUsedAsGradient(Value value, const Space &space,
                             const Forward &forward) {
  auto countElements = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getNumElements();
  };
  SmallVector<Value> worklist = {value};
  DenseSet<Value> seen;
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    for (Operation *user : next.getUsers()) {
      auto op = dyn_cast<linalg::LinalgOp>(user);
      if (op && op.getNumReductionLoops() && op.getNumDpsInputs() == 1 &&
          countElements(op->getResult(0)) * space.shape[0] * space.shape[1] <=
              countElements(next))
        return true;
      if (!isEntryWise(user) || isa<scf::IfOp>(user))
        continue;
      if (llvm::any_of(user->getOperands(), [&](Value read) {
            return read != next && forward.values.contains(read) &&
                   !seen.contains(read);
          }))
        return true;
      for (Value result : user->getResults())
        if (seen.insert(result).second)
          worklist.push_back(result);
    }
  }
  return false;
}

HiddenGradients::Rival
HiddenGradients::findRival(Operation *op, OpOperand &operand,
                           const Factor &factor, const Forward &forward) const {
  auto product = cast<linalg::LinalgOp>(op);
  unsigned place = product.getDpsInputOperand(0) == &operand ? 1 : 0;
  Value across = strip(product.getDpsInputs()[place]).value;
  auto reads = [](linalg::LinalgOp reader, Value value) {
    return llvm::any_of(reader.getDpsInputs(), [&](Value input) {
      return strip(input).value == value;
    });
  };
  Rival rival = Rival::None;
  for (auto &[use, dims] : readers.lookup(factor.value)) {
    auto reader = cast<linalg::LinalgOp>(use->getOwner());
    if (reader == op || reader.getNumDpsInputs() != 2 ||
        !getDependents(reader.getOperation()).contains(op))
      continue;
    unsigned otherPlace = reader.getDpsInputOperand(0) == use ? 1 : 0;
    Value weight = strip(reader.getDpsInputs()[otherPlace]).value;
    AffineMap map = reader.getMatchingIndexingMap(use);
    auto at = llvm::find(dims, factor.dim);
    if (forward.values.contains(weight) || at == dims.end() ||
        reader.getMatchingIndexingMap(reader.getDpsInitOperand(0))
            .getResultPosition(map.getResult(at - dims.begin())))
      continue;
    rival = Rival::Possible;
    if (llvm::any_of(readers.lookup(across), [&](const auto &other) {
          return reads(cast<linalg::LinalgOp>(other.first->getOwner()), weight);
        }))
      return Rival::Sure;
  }
  return rival;
}

SmallVector<HiddenGradient> HiddenGradients::find(const Space &space,
                                                  const Forward &forward,
                                                  bool isPlain) const {
  SmallVector<HiddenGradient> gradients;
  for (const Factor &factor : forward.factors)
    for (auto &[operand, dims] : readers.lookup(factor.value)) {
      Operation *op = operand->getOwner();
      Value result = op->getResult(0);
      if (spaces.contains(result) ||
          llvm::any_of(gradients, [&](const HiddenGradient &known) {
            return known.value == result;
          }))
        continue;
      auto found = match(space, forward, factor, *operand, dims);
      if (!found || isOnlySummed(result, space) || !forward.after.contains(op))
        continue;
      bool isSure = found->isOfBoth || !isPlain;
      if (!isSure) {
        Rival rival = findRival(op, *operand, factor, forward);
        if (rival == Rival::Sure)
          continue;
        isSure =
            rival == Rival::None && isUsedAsGradient(result, space, forward);
      }
      gradients.push_back({result, found->entries, isSure});
    }
  return gradients;
}

/// The integers by which operations look entries of `weight` up, and what is
/// made of them alone, such as a matrix of zeros and ones; adds these
/// operations to `lookUps`.
static DenseSet<Value> findIndices(const BoundWeight &weight,
                                   SmallVectorImpl<Operation *> &lookUps) {
  DenseSet<Value> indices;
  SmallVector<Value> worklist;
  auto reach = [&](Value value) {
    if (indices.insert(value).second)
      worklist.push_back(value);
  };
  for (Operation *user : ToDenseOp(weight.dense).getDense().getUsers()) {
    auto op = user->getParentOfType<linalg::GenericOp>();
    if (!op || op.getNumReductionLoops())
      continue;
    lookUps.push_back(op);
    for (Value input : op.getDpsInputs())
      if (getElementTypeOrSelf(input.getType()).isInteger())
        reach(strip(input).value);
  }
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val().getUsers()) {
      auto op = dyn_cast<linalg::LinalgOp>(user);
      bool isMade = (op && !op.getNumReductionLoops()) || isEntryWise(user);
      if (isMade && llvm::all_of(user->getOperands(), [&](Value read) {
            Operation *producer = read.getDefiningOp();
            return indices.contains(read) || isNumber(read) ||
                   matchPattern(read, m_Constant()) ||
                   isa_and_nonnull<tensor::EmptyOp, linalg::FillOp>(producer);
          }))
        llvm::for_each(user->getResults(), reach);
    }
  return indices;
}

SmallVector<Operation *>
HiddenGradients::findLookUps(const BoundWeight &weight, const Space &space,
                             const Forward &forward) const {
  SmallVector<Operation *> lookUps, found;
  DenseSet<Value> indices = findIndices(weight, lookUps);
  if (lookUps.empty())
    return found;
  DenseSet<Operation *> after = getDependents(lookUps);
  llvm::SetVector<Operation *> readers;
  for (Value index : indices)
    readers.insert(index.getUsers().begin(), index.getUsers().end());
  for (Operation *op : readers) {
    if (op->getNumResults() != 1 || !after.contains(op) ||
        spaces.contains(op->getResult(0)))
      continue;
    auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    if (!type || type.getRank() < 2)
      continue;
    ArrayRef<int64_t> shape = type.getShape().take_back(2);
    if ((shape == ArrayRef(space.shape) ||
         SmallVector<int64_t>(llvm::reverse(shape)) == space.shape) &&
        isUsedAsGradient(op->getResult(0), space, forward))
      found.push_back(op);
  }
  return found;
}

SmallVector<Operation *>
HiddenGradients::findCandidates(const BoundWeight &weight,
                                const Forward &forward) const {
  SmallVector<Operation *> candidates;
  auto type = cast<RankedTensorType>(ToDenseOp(weight.dense).getType());
  SmallVector<int64_t> shape(type.getShape()), swapped(llvm::reverse(shape));
  DenseSet<Operation *> before;
  {
    SmallVector<Operation *> worklist;
    auto reach = [&](Value value) {
      if (Operation *op = value.getDefiningOp(); op && before.insert(op).second)
        worklist.push_back(op);
    };
    for (Operation *op : forward.products)
      visitReads(op, reach);
    while (!worklist.empty())
      visitReads(worklist.pop_back_val(), reach);
  }
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

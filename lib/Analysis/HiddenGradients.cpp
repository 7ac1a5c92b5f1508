// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients that no entry-wise way leads from to a next value.

#include "bsr/Analysis/HiddenGradients.h"
#include "bsr/Analysis/Stripped.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

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

SmallVector<HiddenGradients::Gradient>
HiddenGradients::find(const BoundWeight &weight, const Space &space,
                      const Forward &forward) const {
  ArrayRef<Factor> factors = forward.factors;
  SmallVector<Gradient> gradients;
  // What the next values depend on by more than numbers.
  std::optional<DenseSet<Value>> read;
  auto isRead = [&](Value value) {
    if (!read) {
      read.emplace();
      SmallVector<Value> worklist;
      auto reach = [&](Value next) {
        if (!isNumber(next) && read->insert(next).second)
          worklist.push_back(next);
      };
      for (SampleOp sample : weight.samples)
        reach(sample.getDense());
      while (!worklist.empty())
        if (Operation *op = worklist.pop_back_val().getDefiningOp())
          visitReads(op, reach);
    }
    return read->contains(value);
  };
  auto isKnown = [&](Value value) {
    return llvm::any_of(
        gradients, [&](const Gradient &known) { return known.value == value; });
  };
  for (const Factor &factor : factors) {
    if (factor.dim < 0)
      continue;
    for (auto &[operand, dims] : readers.lookup(factor.value)) {
      auto op = cast<linalg::LinalgOp>(operand->getOwner());
      auto place = llvm::find(dims, factor.dim);
      if (op->getNumResults() != 1 || place == dims.end() ||
          op.getNumDpsInputs() != 2 || spaces.contains(op->getResult(0)))
        continue;
      Value result = op->getResult(0);
      auto type = cast<RankedTensorType>(result.getType());
      AffineMap map = op.getMatchingIndexingMap(operand),
                resultMap = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
      OpOperand *other =
          op.getDpsInputOperand(op.getDpsInputOperand(0) == operand ? 1 : 0);
      Value otherValue = strip(other->get()).value;
      if (type.getRank() != 2 || forward.values.contains(otherValue) ||
          llvm::any_of(factors, [&](const Factor &another) {
            return another.value == otherValue;
          }))
        continue;
      AffineExpr loop = map.getResult(place - dims.begin());
      auto at = resultMap.getResultPosition(loop);
      if (!at)
        continue;
      // All of the factor's other dimensions are summed.
      auto kinds = op.getIteratorTypesArray();
      bool sums = llvm::all_of(map.getResults(), [&](AffineExpr expr) {
        auto dim = dyn_cast<AffineDimExpr>(expr);
        return expr == loop || !dim ||
               kinds[dim.getPosition()] == utils::IteratorType::reduction;
      });
      bool transposed = (*at == 0) != factor.isRow;
      if (!sums || type.getDimSize(transposed) != space.shape[0] ||
          type.getDimSize(!transposed) != space.shape[1] ||
          (!weight.samples.empty() && !isRead(result)) || isKnown(result) ||
          !forward.after.contains(op))
        continue;
      Entries entries = Entries::getWhole(type.getShape());
      if (transposed) {
        entries = Entries::getWhole(space.shape);
        std::swap(entries.strides[0], entries.strides[1]);
        std::swap(entries.sizes[0], entries.sizes[1]);
      }
      gradients.push_back({result, std::move(entries)});
    }
  }
  return gradients;
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

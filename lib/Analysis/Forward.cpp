// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What products multiply a weight with.

#include "bsr/Analysis/Forward.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/OffPattern.h"
#include "bsr/Analysis/Stripped.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::bsr;

Forward::Forward(const BoundWeight &weight, const StepData &data,
                 const Spaces &spaces, ArrayRef<HiddenGradient> gradients) {
  findFactors(weight, data, gradients);
  after = Dependents(products);
  findMixing(weight, data, spaces);
}

namespace {
/// How an entry-wise function of a weight lies.
enum Lie { Same, Transposed, Other };
using Lies = llvm::MapVector<Value, Lie>;
} // namespace

/// Adds the results of entry-wise `op`, which reads `use`, to `lies`.
static void addEntryWise(OpOperand &use, Lie lie, const StepData &data,
                         Lies &lies) {
  auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
  // The gradient of what data is added to is the data's as well.
  bool readsData = llvm::any_of(use.getOwner()->getOperands(), [&](Value read) {
    return data.contains(read) && !lies.contains(read);
  });
  for (OpResult result : use.getOwner()->getResults()) {
    Lie next = Other;
    if (op && lie != Other && !readsData) {
      Access access =
          getAccess(op, use, op.getIndexingMapMatchingResult(result));
      if (access == Access::Same)
        next = lie;
      else if (access == Access::Transposed)
        next = lie == Same ? Transposed : Same;
    }
    lies.insert({result, next});
  }
}

/// Follows entry-wise functions of what `lies` has; calls `visitProduct` for
/// their other uses, but for those that only move them.
static void followEntryWise(
    const StepData &data, Lies &lies,
    function_ref<void(OpOperand &, linalg::LinalgOp, Lie)> visitProduct) {
  for (unsigned i = 0; i != lies.size(); ++i) {
    auto [value, lie] = *(lies.begin() + i);
    for (OpOperand &use : value.getUses()) {
      auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
      if (op && op.getNumReductionLoops())
        visitProduct(use, op, lie);
      else if (isEntryWise(use.getOwner()) && !isa<scf::IfOp>(use.getOwner()))
        addEntryWise(use, lie, data, lies);
    }
  }
}

void Forward::findFactors(const BoundWeight &weight, const StepData &data,
                          ArrayRef<HiddenGradient> gradients) {
  Lies lies;
  Entries whole = Entries::getWhole(
      ToDenseOp(weight.dense).getDense().getType().getShape());
  for (const HiddenGradient &gradient : gradients)
    lies.insert({gradient.value, gradient.entries.sizes.size() != 2 ? Other
                                 : gradient.entries == whole        ? Same
                                                             : Transposed});
  // What the step makes of gradients is known before it changes the weight.
  followEntryWise(data, lies, [](OpOperand &, linalg::LinalgOp, Lie) {});
  lies.insert({ToDenseOp(weight.dense).getDense(), Same});
  auto visitProduct = [&](OpOperand &use, linalg::LinalgOp op, Lie lie) {
    AffineMap map = op.getMatchingIndexingMap(&use);
    auto kinds = op.getIteratorTypesArray();
    for (OpOperand *x : op.getDpsInputOperands()) {
      if (x == &use || isNumber(x->get()))
        continue;
      Stripped stripped = strip(x->get());
      Factor factor{stripped.value};
      AffineMap xMap = op.getMatchingIndexingMap(x);
      for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
        auto loop = dyn_cast<AffineDimExpr>(expr);
        if (!loop || lie == Other || map.getNumResults() != 2 ||
            kinds[loop.getPosition()] != utils::IteratorType::reduction)
          continue;
        if (auto at = xMap.getResultPosition(expr)) {
          factor.dim = stripped.dims[*at];
          factor.isRow = (dim == 0) == (lie == Same);
        }
      }
      factors.push_back(factor);
      products.push_back(op);
    }
  };
  followEntryWise(data, lies, visitProduct);
  for (auto &known : lies)
    values.insert(known.first);
  llvm::erase_if(factors, [&](const Factor &factor) {
    return values.contains(factor.value);
  });
}

/// Finds whether sums of the weight's entries change them in front of
/// products (weight standardization): entries off the pattern are no zeros
/// then, and the gradient of what is multiplied is not the weight's.
void Forward::findMixing(const BoundWeight &weight, const StepData &data,
                         const Spaces &spaces) {
  // What data enters is activations: they are mixed in every model.
  DenseSet<Value> functions;
  for (Value value : values)
    if (!data.contains(value))
      functions.insert(value);
  DenseSet<Value> multiplied;
  SmallVector<Value> worklist;
  auto reach = [&](Value value) {
    if (functions.contains(value) && multiplied.insert(value).second)
      worklist.push_back(value);
  };
  for (Operation *product : products)
    llvm::for_each(product->getOperands(), reach);
  while (!worklist.empty())
    if (Operation *op = worklist.pop_back_val().getDefiningOp();
        op && !isa<ToDenseOp>(op))
      visitReads(op, reach);
  SmallVector<Value> ordered(multiplied.begin(), multiplied.end());
  spaces.sortInOrder(ordered);
  Offs offs;
  offs[ToDenseOp(weight.dense).getDense()] = Off::Zero;
  for (Value value : ordered) {
    auto op = value.getDefiningOp<linalg::LinalgOp>();
    if (!op || !isElementWise(op))
      continue;
    offs[value] = getBodyOff(op, cast<OpResult>(value), offs);
    if (offs[value] != Off::Zero && !mixing &&
        llvm::any_of(op.getDpsInputs(), [&](Value input) {
          return !functions.contains(input) && data.isOnlyOf(input, functions);
        }))
      mixing = op;
  }
}

bool Forward::readsFactor(Operation *op, unsigned depth) const {
  for (Value operand : op->getOperands()) {
    Value stripped = strip(operand).value;
    if (llvm::any_of(factors, [&](const Factor &factor) {
          return factor.value == stripped;
        }))
      return true;
  }
  // A sum of one tensor, over a batch say.
  auto sum = dyn_cast<linalg::LinalgOp>(op);
  if (!depth || !sum || sum.getNumDpsInputs() != 1)
    return false;
  Operation *producer = strip(sum.getDpsInputs()[0]).value.getDefiningOp();
  return producer && readsFactor(producer, depth - 1);
}

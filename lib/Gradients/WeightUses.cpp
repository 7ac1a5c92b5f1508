// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What products multiply a weight with.

#include "bsr/Gradients/WeightUses.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Stripped.h"
#include "bsr/Gradients/LookUpPlaces.h"
#include "bsr/Gradients/OffPattern.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::bsr;

Forward::Forward(const BoundWeight &weight, const StepData &data,
                 const Spaces &spaces, ArrayRef<HiddenGradient> gradients) {
  findFactors(weight, data, gradients);
  after = Dependents(products);
  findMixing(weight, data, spaces);
}

/// Adds the results of an entry-wise operation, which reads `use` with
/// `entries`, if they are known, to the values.
void Forward::addEntryWise(OpOperand &use,
                           const std::optional<Entries> &entries,
                           const StepData &data) {
  // The gradient of what data is added to is the data's as well.
  bool readsData = llvm::any_of(use.getOwner()->getOperands(), [&](Value read) {
    return activations.contains(read) ||
           (data.contains(read) && !values.contains(read));
  });
  for (OpResult result : use.getOwner()->getResults()) {
    std::optional<Entries> next;
    if (entries && !readsData)
      next = followEntries(use, result.getResultNumber(), *entries);
    auto [known, isNew] = values.insert({result, next});
    // Of what has the weight twice, such as a stack of its multiples, an entry
    // is not known.
    if (!isNew && known->second && !(next == known->second))
      forget(result);
    if (!isNew || !readsData)
      continue;
    activations.insert(result);
    if (entries)
      mixtures.push_back(use.getOwner());
  }
}

/// Forgets which entries `value` has, and functions of it.
void Forward::forget(Value value) {
  SmallVector<Value> worklist = {value};
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    auto *known = values.find(next);
    if (known == values.end() || !known->second)
      continue;
    known->second = std::nullopt;
    for (Operation *user : next.getUsers())
      llvm::append_range(worklist, user->getResults());
  }
}

/// True for a tensor of one number that is a factor of products all the same:
/// it is summed along a dimension of one entry.
static bool isFactorOfOne(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() > 0;
}

/// Adds what `op` multiplies `use` with, which has `entries`, if they are
/// known.
void Forward::addProduct(OpOperand &use, linalg::LinalgOp op,
                         const std::optional<Entries> &entries) {
  AffineMap map = op.getMatchingIndexingMap(&use);
  ArrayRef<int64_t> shape =
      cast<RankedTensorType>(use.get().getType()).getShape();
  for (OpOperand *x : op.getDpsInputOperands()) {
    if (x == &use || (isNumber(x->get()) && !isFactorOfOne(x->get())))
      continue;
    Stripped stripped = strip(x->get());
    Factor factor;
    factor.value = stripped.value;
    AffineMap xMap = op.getMatchingIndexingMap(x);
    for (AffineExpr expr : map.getResults()) {
      auto loop = dyn_cast<AffineDimExpr>(expr);
      auto at = xMap.getResultPosition(expr);
      int64_t dim = Factor::Absent;
      if (loop && at)
        dim = stripped.dims[*at] < 0 ? Factor::Lost : stripped.dims[*at];
      else if (!loop || xMap.isFunctionOfDim(loop.getPosition()))
        dim = Factor::Lost;
      factor.dims.push_back(dim);
    }
    factor.shape.assign(shape.begin(), shape.end());
    factor.isOfData = activations.contains(use.get());
    if (entries)
      factor.entries = *entries;
    else
      factor.dims.clear();
    factors.push_back(factor);
    products.push_back(op);
  }
}

/// Adds the places at which `extract`, in the body of an operation, reads what
/// has `entries`, if they are known: integers, and matrices of ones there.
void Forward::addLookUp(tensor::ExtractOp extract,
                        const std::optional<Entries> &entries) {
  auto op = extract->getParentOfType<linalg::LinalgOp>();
  if (!op || op.getNumReductionLoops())
    return;
  ArrayRef<int64_t> shape = extract.getTensor().getType().getShape();
  Factor factor;
  factor.isPlace = true;
  for (auto [dim, index] : llvm::enumerate(extract.getIndices()))
    factor.dims.push_back(shape[dim] == 1 ||
                                  index.getDefiningOp<linalg::IndexOp>()
                              ? Factor::Absent
                              : Factor::ByPlace);
  factor.shape.assign(shape.begin(), shape.end());
  if (entries)
    factor.entries = *entries;
  products.push_back(op);
  auto *placed = llvm::find(factor.dims, Factor::ByPlace);
  if (llvm::count(factor.dims, Factor::ByPlace) != 1)
    return;
  unsigned along = placed - factor.dims.begin();
  for (auto [value, dim] : findPlaces(op, shape[along])) {
    factor.value = value;
    factor.dims[along] = dim < 0 ? Factor::ByPlace : dim;
    factors.push_back(factor);
    if (!entries)
      factors.back().dims.clear();
  }
}

/// Follows entry-wise functions of the values.
void Forward::follow(const StepData &data) {
  for (unsigned i = 0; i != values.size(); ++i) {
    auto [value, entries] = *(values.begin() + i);
    for (OpOperand &use : value.getUses()) {
      auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
      if ((!op || !op.getNumReductionLoops()) && isEntryWise(use.getOwner()) &&
          !isa<scf::IfOp>(use.getOwner()))
        addEntryWise(use, entries, data);
    }
  }
}

/// Adds what multiplies the values, or looks them up, to the products.
void Forward::addProducts() {
  for (auto &[value, entries] : values)
    for (OpOperand &use : value.getUses()) {
      auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
      if (op && op.getNumReductionLoops())
        addProduct(use, op, entries);
      else if (auto extract = dyn_cast<tensor::ExtractOp>(use.getOwner()))
        addLookUp(extract, entries);
    }
}

/// The tensors that `value` is a part of, and those that are parts of it.
static SmallVector<Value> getWholes(Value value) {
  llvm::SetVector<Value> wholes;
  wholes.insert(value);
  for (unsigned i = 0; i != wholes.size(); ++i)
    if (Operation *op = wholes[i].getDefiningOp();
        isa_and_nonnull<tensor::ExtractSliceOp, tensor::InsertSliceOp,
                        tensor::ConcatOp>(op))
      visitReads(op, [&](Value read) {
        Value part = strip(read).value;
        if (!matchPattern(part, m_Constant()) &&
            !isa_and_nonnull<tensor::EmptyOp, linalg::FillOp>(
                part.getDefiningOp()))
          wholes.insert(part);
      });
  SmallVector<Value> parts = {value};
  auto reach = [&](Operation *user) {
    if (wholes.insert(user->getResult(0)))
      parts.push_back(user->getResult(0));
  };
  while (!parts.empty()) {
    Value part = parts.pop_back_val();
    for (Operation *user : part.getUsers()) {
      bool isJoin = isa<tensor::InsertSliceOp, tensor::ConcatOp>(user);
      if (isJoin || (user->getNumResults() == 1 &&
                     strip(user->getResult(0)).value == strip(part).value))
        reach(user);
    }
  }
  return wholes.takeVector();
}

/// Adds tensors that have factors as parts: what goes along their dimensions is
/// not known.
void Forward::addWholes() {
  llvm::SetVector<Value> known;
  for (const Factor &factor : factors)
    known.insert(factor.value);
  for (unsigned i : llvm::seq<unsigned>(factors.size())) {
    if (factors[i].isPlace || factors[i].isOfData)
      continue;
    Factor whole = factors[i];
    whole.dims.clear();
    whole.isWhole = true;
    for (Value value : getWholes(factors[i].value)) {
      whole.value = strip(value).value;
      if (known.insert(whole.value))
        factors.push_back(whole);
    }
  }
}

void Forward::findFactors(const BoundWeight &weight, const StepData &data,
                          ArrayRef<HiddenGradient> gradients) {
  for (const HiddenGradient &gradient : gradients)
    values.insert({gradient.value, gradient.isSure
                                       ? std::optional(gradient.entries)
                                       : std::nullopt});
  // What the step makes of gradients is known before it changes the weight.
  follow(data);
  TypedValue<RankedTensorType> dense = ToDenseOp(weight.dense).getDense();
  values.insert({dense, Entries::getWhole(dense.getType().getShape())});
  follow(data);
  addProducts();
  llvm::erase_if(factors, [&](const Factor &factor) {
    return values.contains(factor.value);
  });
  addWholes();
}

/// Finds whether sums of the weight's entries change them in front of
/// products (weight standardization): entries off the pattern are no zeros
/// then, and the gradient of what is multiplied is not the weight's.
void Forward::findMixing(const BoundWeight &weight, const StepData &data,
                         const Spaces &spaces) {
  // What data enters is activations: they are mixed in every model.
  DenseSet<Value> functions;
  for (Value value : llvm::make_first_range(values))
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
          return factor.value == stripped && !factor.isWhole;
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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the entries of values are made of, operation by operation.

#include "bsr/Analysis/Makeup.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/Entries.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::bsr;

static bool isLinear(Made made) {
  return made == Made::OfGradients || made == Made::OfSums;
}

static bool isOfNumbers(Made made) {
  return made == Made::OfNumbers || made == Made::OfMeans;
}

static bool isOfWeight(Made made) {
  return isOfNumbers(made) || made == Made::Weight || made == Made::OfWeight;
}

/// What `op` makes of what is made so.
static Made combine(Operation *op, ArrayRef<Made> in) {
  if (in.empty())
    return isa<linalg::IndexOp>(op) ? Made::OfOther : Made::OfNumbers;
  bool isKept = isa<arith::ExtFOp, arith::TruncFOp, BarrierOp>(op);
  if (llvm::all_of(in, isOfNumbers))
    return *llvm::max_element(in);
  if (llvm::all_of(in, isOfWeight) && !isKept)
    return Made::OfWeight;
  if (llvm::is_contained(in, Made::OfOther))
    return Made::OfOther;
  // A step within the step makes a weight; a penalty adds a multiple of it.
  if ((isa<arith::AddFOp, arith::SubFOp>(op) && in[0] == Made::Weight) ||
      (isa<arith::AddFOp>(op) && in[1] == Made::Weight))
    return Made::Weight;
  // What is added to a gradient is of a penalty, unless it is of gradients.
  if (isa<arith::AddFOp, arith::SubFOp>(op))
    return llvm::all_equal(in)                     ? in[0]
           : llvm::is_contained(in, Made::OfMeans) ? Made::OfOther
                                                   : Made::OfSums;
  // One or the other, by the weight.
  if (isa<arith::SelectOp>(op) && isOfWeight(in[0]))
    return in[1] == in[2] ? in[1] : Made::OfSums;
  if (isKept || isa<arith::NegFOp>(op))
    return in[0];
  if (isa<arith::MulFOp>(op) && isOfWeight(in[0]))
    return in[1];
  if (isa<arith::MulFOp, arith::DivFOp>(op) && isOfWeight(in[1]))
    return in[0];
  return Made::OfOther;
}

/// What moving entries makes of what is made so; zeros may lie between them.
static Made move(ArrayRef<Made> in) {
  SmallVector<Made> moved = llvm::filter_to_vector(
      in, [](Made made) { return made != Made::OfNumbers; });
  if (moved.empty())
    return Made::OfNumbers;
  if (llvm::all_of(moved, isOfNumbers))
    return Made::OfMeans;
  if (llvm::all_equal(moved))
    return moved[0];
  if (llvm::all_of(moved, isOfWeight))
    return Made::OfWeight;
  return llvm::all_of(moved, isLinear) ? Made::OfSums : Made::OfOther;
}

Makeup::Makeup(Value weight, ArrayRef<Value> gradients, const StepData &data)
    : weight(weight), data(data) {
  known[weight] = Made::Weight;
  for (Value gradient : gradients)
    known[gradient] = Made::OfGradients;
}

/// What `value` is made of if that is numbers alone, entry by entry, in few
/// operations.
Made Makeup::getOfNumbers(Value value) const {
  constexpr unsigned most = 16;
  Made made = Made::OfNumbers;
  llvm::SetVector<Value> values;
  values.insert(value);
  for (unsigned i = 0; i != values.size(); ++i) {
    Operation *op = values[i].getDefiningOp();
    if (isNumber(values[i]) && data.enters(values[i]))
      made = Made::OfMeans;
    if (isNumber(values[i]) || matchPattern(values[i], m_Constant()) ||
        isa_and_nonnull<tensor::EmptyOp>(op))
      continue;
    if (i == most || !op || !isEntryWise(op) || !isa<linalg::LinalgOp>(op) ||
        llvm::any_of(op->getRegions(), [](Region &region) {
          return !region.getOps<linalg::IndexOp>().empty();
        }))
      return data.isOnlyOf(value, DenseSet<Value>{weight}) ? Made::OfWeight
                                                           : Made::OfOther;
    values.insert(op->operand_begin(), op->operand_end());
  }
  return made;
}

Made Makeup::get(Value value) const {
  auto found = known.find(value);
  return found != known.end() ? found->second : getOfNumbers(value);
}

void Makeup::add(Operation *op) {
  auto getIn = [&](Operation *inner) {
    return llvm::map_to_vector(inner->getOperands(),
                               [&](Value read) { return get(read); });
  };
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp) {
    SmallVector<Made> in = getIn(op);
    Made made = op->getNumRegions() ? Made::OfOther : combine(op, in);
    if (isa<tensor::TensorDialect>(op->getDialect()))
      made = move(in);
    for (Value result : op->getResults())
      known.insert({result, made});
    return;
  }
  for (OpOperand &operand : op->getOpOperands())
    known[linalgOp.getMatchingBlockArgument(&operand)] = get(operand.get());
  for (Operation &inner : linalgOp.getBlock()->without_terminator()) {
    Made made = combine(&inner, getIn(&inner));
    for (Value result : inner.getResults())
      known[result] = made;
  }
  Operation *yield = linalgOp.getBlock()->getTerminator();
  for (auto [result, yielded] :
       llvm::zip_equal(op->getResults(), yield->getOperands()))
    known.insert({result, get(yielded)});
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the entries of values are made of, operation by operation.

#include "bsr/Gradients/Makeup.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/EntryMaps.h"
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

Makeup::Makeup(Value weight, ArrayRef<Value> gradients, const StepData &data,
               const Offs &offs)
    : weight(weight), data(data), offs(offs) {
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

/// What `op`, a sum or a difference, makes of what is made so.
Made Makeup::combineSum(Operation *op, ArrayRef<Made> in) const {
  // A step within the step makes a weight; a penalty adds a multiple of it.
  if (in[0] == Made::Weight ||
      (isa<arith::AddFOp>(op) && in[1] == Made::Weight))
    return Made::Weight;
  if (llvm::all_equal(in))
    return in[0];
  if (llvm::is_contained(in, Made::OfMeans))
    return Made::OfOther;
  if (!llvm::is_contained(in, Made::OfFunctions))
    return Made::OfSums;
  // Gradients of second order are functions of gradients that are zero where
  // these are; what is no number and added to one is of a penalty.
  bool isOfPenalty = llvm::any_of(llvm::seq<unsigned>(2), [&](unsigned i) {
    return in[i] == Made::OfFunctions &&
           getOff(offs, op->getOperand(i)) == Off::Zero &&
           in[1 - i] == Made::OfWeight;
  });
  return isOfPenalty ? Made::OfSums : Made::OfFunctions;
}

/// What `op` makes of what its operands are made of.
Made Makeup::combine(Operation *op) const {
  SmallVector<Made> in = llvm::map_to_vector(
      op->getOperands(), [&](Value read) { return get(read); });
  if (in.empty())
    return isa<linalg::IndexOp>(op) ? Made::OfOther : Made::OfNumbers;
  bool isKept = isa<arith::ExtFOp, arith::TruncFOp, BarrierOp>(op);
  if (llvm::all_of(in, isOfNumbers))
    return *llvm::max_element(in);
  if (llvm::all_of(in, isOfWeight) && !isKept)
    return Made::OfWeight;
  if (llvm::is_contained(in, Made::OfOther))
    return Made::OfOther;
  if (isa<arith::AddFOp, arith::SubFOp>(op))
    return combineSum(op, in);
  // One or the other, by the weight.
  if (isa<arith::SelectOp>(op) && isOfWeight(in[0]) && in[1] == in[2])
    return in[1];
  if (isa<arith::SelectOp>(op) && isOfWeight(in[0]) &&
      !llvm::is_contained(in, Made::OfFunctions))
    return Made::OfSums;
  if (isKept || isa<arith::NegFOp>(op))
    return in[0];
  if (isa<arith::MulFOp>(op) && isOfWeight(in[0]))
    return in[1];
  if (isa<arith::MulFOp, arith::DivFOp>(op) && isOfWeight(in[1]))
    return in[0];
  return Made::OfFunctions;
}

void Makeup::add(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp) {
    Made made = op->getNumRegions() ? Made::OfOther : combine(op);
    if (isa<tensor::TensorDialect>(op->getDialect()))
      made = move(llvm::map_to_vector(op->getOperands(),
                                      [&](Value read) { return get(read); }));
    for (Value result : op->getResults())
      known.insert({result, made});
    return;
  }
  for (OpOperand &operand : op->getOpOperands())
    known[linalgOp.getMatchingBlockArgument(&operand)] = get(operand.get());
  for (Operation &inner : linalgOp.getBlock()->without_terminator()) {
    Made made = combine(&inner);
    for (Value result : inner.getResults())
      known[result] = made;
  }
  Operation *yield = linalgOp.getBlock()->getTerminator();
  for (auto [result, yielded] :
       llvm::zip_equal(op->getResults(), yield->getOperands()))
    known.insert({result, get(yielded)});
}

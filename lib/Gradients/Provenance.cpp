// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the entries of values are made of, operation by operation.

#include "bsr/Gradients/Provenance.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/EntryMaps.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::bsr;

static bool isLinear(Origin made) {
  return made == Origin::Gradients || made == Origin::Sums;
}

static bool isOfNumbers(Origin made) {
  return made == Origin::Numbers || made == Origin::Means;
}

static bool isOfWeight(Origin made) {
  return isOfNumbers(made) || made == Origin::Weight ||
         made == Origin::OfWeight;
}

/// What moving entries makes of what is made so; zeros may lie between them.
static Origin move(ArrayRef<Origin> in) {
  SmallVector<Origin> moved = llvm::filter_to_vector(
      in, [](Origin made) { return made != Origin::Numbers; });
  if (moved.empty())
    return Origin::Numbers;
  if (llvm::all_of(moved, isOfNumbers))
    return Origin::Means;
  if (llvm::all_equal(moved))
    return moved[0];
  if (llvm::all_of(moved, isOfWeight))
    return Origin::OfWeight;
  return llvm::all_of(moved, isLinear) ? Origin::Sums : Origin::Other;
}

Provenance::Provenance(Value weight, ArrayRef<Value> gradients,
                       const StepData &data, const Offs &offs)
    : weight(weight), data(data), offs(offs) {
  known[weight] = Origin::Weight;
  for (Value gradient : gradients)
    known[gradient] = Origin::Gradients;
}

/// What `value` is made of if that is numbers alone, entry by entry, in few
/// operations.
Origin Provenance::getOfNumbers(Value value) const {
  constexpr unsigned most = 16;
  Origin made = Origin::Numbers;
  llvm::SetVector<Value> values;
  values.insert(value);
  for (unsigned i = 0; i != values.size(); ++i) {
    Operation *op = values[i].getDefiningOp();
    if (isNumber(values[i]) && data.enters(values[i]))
      made = Origin::Means;
    if (isNumber(values[i]) || matchPattern(values[i], m_Constant()) ||
        isa_and_nonnull<tensor::EmptyOp>(op))
      continue;
    if (i == most || !op || !isEntryWise(op) || !isa<linalg::LinalgOp>(op) ||
        llvm::any_of(op->getRegions(), [](Region &region) {
          return !region.getOps<linalg::IndexOp>().empty();
        }))
      return data.isOnlyOf(value, DenseSet<Value>{weight}) ? Origin::OfWeight
                                                           : Origin::Other;
    values.insert(op->operand_begin(), op->operand_end());
  }
  return made;
}

Origin Provenance::get(Value value) const {
  auto found = known.find(value);
  return found != known.end() ? found->second : getOfNumbers(value);
}

/// What `op`, a sum or a difference, makes of what is made so.
Origin Provenance::combineSum(Operation *op, ArrayRef<Origin> in) const {
  // A step within the step makes a weight; a penalty adds a multiple of it.
  if (in[0] == Origin::Weight ||
      (isa<arith::AddFOp>(op) && in[1] == Origin::Weight))
    return Origin::Weight;
  if (llvm::all_equal(in))
    return in[0];
  if (llvm::is_contained(in, Origin::Means))
    return Origin::Other;
  if (!llvm::is_contained(in, Origin::Functions))
    return Origin::Sums;
  // Gradients of second order are functions of gradients that are zero where
  // these are; what is no number and added to one is of a penalty.
  bool isOfPenalty = llvm::any_of(llvm::seq<unsigned>(2), [&](unsigned i) {
    return in[i] == Origin::Functions &&
           getOff(offs, op->getOperand(i)) == Off::Zero &&
           in[1 - i] == Origin::OfWeight;
  });
  return isOfPenalty ? Origin::Sums : Origin::Functions;
}

/// What `op` makes of what its operands are made of.
Origin Provenance::combine(Operation *op) const {
  SmallVector<Origin> in = llvm::map_to_vector(
      op->getOperands(), [&](Value read) { return get(read); });
  if (in.empty())
    return isa<linalg::IndexOp>(op) ? Origin::Other : Origin::Numbers;
  bool isKept = isa<arith::ExtFOp, arith::TruncFOp, BarrierOp>(op);
  if (llvm::all_of(in, isOfNumbers))
    return *llvm::max_element(in);
  if (llvm::all_of(in, isOfWeight) && !isKept)
    return Origin::OfWeight;
  if (llvm::is_contained(in, Origin::Other))
    return Origin::Other;
  if (isa<arith::AddFOp, arith::SubFOp>(op))
    return combineSum(op, in);
  // One or the other, by the weight.
  if (isa<arith::SelectOp>(op) && isOfWeight(in[0]) && in[1] == in[2])
    return in[1];
  if (isa<arith::SelectOp>(op) && isOfWeight(in[0]) &&
      !llvm::is_contained(in, Origin::Functions))
    return Origin::Sums;
  if (isKept || isa<arith::NegFOp>(op))
    return in[0];
  if (isa<arith::MulFOp>(op) && isOfWeight(in[0]))
    return in[1];
  if (isa<arith::MulFOp, arith::DivFOp>(op) && isOfWeight(in[1]))
    return in[0];
  return Origin::Functions;
}

void Provenance::add(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp) {
    Origin made = op->getNumRegions() ? Origin::Other : combine(op);
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
    Origin made = combine(&inner);
    for (Value result : inner.getResults())
      known[result] = made;
  }
  Operation *yield = linalgOp.getBlock()->getTerminator();
  for (auto [result, yielded] :
       llvm::zip_equal(op->getResults(), yield->getOperands()))
    known.insert({result, get(yielded)});
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds what is exponentiated, scores that are scaled, biased and masked, and
// what probabilities are multiplied with.

#include "AttentionScores.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Kernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;

std::optional<double> bsr::getConstant(Value value) {
  EntryValues values(
      [](Value, ArrayRef<int64_t>) { return std::optional<double>(); });
  // The first and the last entry, of what is the same everywhere.
  Value at = value;
  while (Operation *op = at.getDefiningOp()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (generic && isPointwise(generic) && getYieldedInput(generic)) {
      at = getYieldedInput(generic)->get();
      continue;
    }
    if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op)) {
      at = op->getOperand(0);
      continue;
    }
    break;
  }
  if (!isa<RankedTensorType>(at.getType())) {
    FloatAttr number;
    auto constant = at.getDefiningOp<arith::ConstantOp>();
    if (constant)
      number = dyn_cast<FloatAttr>(constant.getValue());
    return number ? std::optional(number.getValueAsDouble()) : std::nullopt;
  }
  Operation *op = at.getDefiningOp();
  auto constant = dyn_cast_or_null<arith::ConstantOp>(op);
  if (!isa_and_nonnull<linalg::FillOp>(op) &&
      !(constant && isa<SplatElementsAttr>(constant.getValue())))
    return std::nullopt;
  return values.get(at, SmallVector<int64_t>(
                            cast<RankedTensorType>(at.getType()).getRank(), 0));
}

namespace {
/// A body of one operation, of which one operand is what was followed.
class Term {
public:
  Term(AttentionScores &scores, linalg::GenericOp op, Value followed,
       const Labels &loops)
      : scores(scores), op(op), followed(followed), loops(loops) {}

  bool isFollowed(Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && argument.getOwner() == op.getBody() &&
           argument.getArgNumber() < op.getNumDpsInputs() &&
           op->getOperand(argument.getArgNumber()) == followed;
  }
  /// The tensor that `value` is an element of, or null if it is no tensor or
  /// depends on the scores.
  Labelled getTensor(Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != op.getBody() ||
        argument.getArgNumber() >= op.getNumDpsInputs())
      return {};
    Value operand = op->getOperand(argument.getArgNumber());
    if (!isa<RankedTensorType>(operand.getType()) ||
        scores.labels.count(operand))
      return {};
    return scores.getOperand(op, argument.getArgNumber(), loops);
  }
  /// The number that `value` is everywhere.
  std::optional<double> getNumber(Value value) {
    if (value.getParentBlock() != op.getBody())
      return getConstant(value);
    Labelled tensor = getTensor(value);
    return tensor ? getConstant(tensor.tensor) : std::nullopt;
  }

private:
  AttentionScores &scores;
  linalg::GenericOp op;
  Value followed;
  const Labels &loops;
};
} // namespace

/// Takes `op`, which changes the score element by element, into what is
/// exponentiated: scale first, then biases, then masks. False if it is
/// something else.
bool AttentionScores::addTerm(linalg::GenericOp op, Value score) {
  if (!isPointwise(op) || op->getNumResults() != 1)
    return false;
  std::optional<Labels> loops = getLoopLabels(op);
  if (!loops || llvm::is_contained(*loops, -1))
    return false;
  Block *body = op.getBody();
  Term term(*this, op, score, *loops);
  Value yielded = body->getTerminator()->getOperand(0);
  if (term.isFollowed(yielded))
    return true;
  Operation *last = yielded.getDefiningOp();
  if (!last || !llvm::hasSingleElement(body->without_terminator()))
    return false;
  if (isa<arith::ExtFOp, arith::TruncFOp>(last))
    return term.isFollowed(last->getOperand(0));
  if (isa<arith::MulFOp, arith::DivFOp>(last)) {
    bool isFirst = term.isFollowed(last->getOperand(0));
    if (!isFirst &&
        (isa<arith::DivFOp>(last) || !term.isFollowed(last->getOperand(1))))
      return false;
    std::optional<double> factor =
        term.getNumber(last->getOperand(isFirst ? 1 : 0));
    if (!factor || !found.biases.empty() || !found.masks.empty())
      return false;
    found.scale = isa<arith::DivFOp>(last) ? found.scale / *factor
                                           : found.scale * *factor;
    return true;
  }
  if (isa<arith::AddFOp>(last)) {
    bool isFirst = term.isFollowed(last->getOperand(0));
    if (!isFirst && !term.isFollowed(last->getOperand(1)))
      return false;
    Labelled bias = term.getTensor(last->getOperand(isFirst ? 1 : 0));
    if (!bias || !found.masks.empty())
      return false;
    found.biases.push_back(bias);
    return true;
  }
  if (auto select = dyn_cast<arith::SelectOp>(last)) {
    bool isTrue = term.isFollowed(select.getTrueValue());
    if (!isTrue && !term.isFollowed(select.getFalseValue()))
      return false;
    std::optional<double> fill =
        term.getNumber(isTrue ? select.getFalseValue() : select.getTrueValue());
    Labelled mask = term.getTensor(select.getCondition());
    if (!fill || !mask || std::isnan(*fill) || *fill == INFINITY ||
        (found.fill && *found.fill != *fill))
      return false;
    found.fill = fill;
    found.masks.push_back({mask, !isTrue});
    return true;
  }
  return false;
}

/// Finds what is exponentiated: the product with all that is applied to it
/// element by element before its rows are reduced.
void AttentionScores::findTerms() {
  Value score = found.scores->getResult(0);
  while (true) {
    linalg::GenericOp next;
    for (Operation *user : score.getUsers()) {
      auto op = dyn_cast<linalg::GenericOp>(user);
      if (!op || !labels.count(op->getResult(0)) || rowReductions.contains(op))
        continue;
      AttentionMatch before = found;
      if (addTerm(op, score)) {
        next = op;
        break;
      }
      found = before;
    }
    if (!next)
      return;
    score = next->getResult(0);
  }
}

bool AttentionScores::peelFactor(Site &site) {
  auto op = site.read.tensor.getDefiningOp<linalg::GenericOp>();
  if (auto reshape = site.read.tensor.getDefiningOp();
      isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(
          reshape)) {
    site.read = {reshape->getOperand(0), labels.lookup(reshape->getOperand(0))};
    return labels.count(site.read.tensor);
  }
  if (!op || op == found.scores || !isPointwise(op) ||
      op->getNumResults() != 1 || rowReductions.contains(op))
    return false;
  std::optional<Labels> loops = getLoopLabels(op);
  // One operand is followed: what probabilities are multiplied with is not
  // computed from the scores.
  OpOperand *followed = nullptr;
  for (OpOperand *input : op.getDpsInputOperands()) {
    if (!labels.count(input->get()))
      continue;
    if (followed)
      return false;
    followed = input;
  }
  Block *body = op.getBody();
  if (!loops || !followed || llvm::is_contained(*loops, -1))
    return false;
  Term term(*this, op, followed->get(), *loops);
  AttentionMatch::Factor factor = found.factor;
  Value yielded = body->getTerminator()->getOperand(0);
  Operation *last = yielded.getDefiningOp();
  if (!term.isFollowed(yielded)) {
    if (!last || !llvm::hasSingleElement(body->without_terminator()))
      return false;
    if (isa<arith::MulFOp, arith::DivFOp>(last)) {
      bool isFirst = term.isFollowed(last->getOperand(0));
      bool isQuotient = isa<arith::DivFOp>(last);
      if (!isFirst && (isQuotient || !term.isFollowed(last->getOperand(1))))
        return false;
      Value other = last->getOperand(isFirst ? 1 : 0);
      if (std::optional<double> number = term.getNumber(other))
        factor.number *= isQuotient ? 1 / *number : *number;
      else if (Labelled tensor = term.getTensor(other); tensor && !isQuotient)
        factor.tensors.push_back(tensor);
      else
        return false;
    } else if (auto select = dyn_cast<arith::SelectOp>(last)) {
      bool isTrue = term.isFollowed(select.getTrueValue());
      Value other = isTrue ? select.getFalseValue() : select.getTrueValue();
      Labelled mask = term.getTensor(select.getCondition());
      if ((!isTrue && !term.isFollowed(select.getFalseValue())) || !mask ||
          term.getNumber(other) != 0.0)
        return false;
      factor.masks.push_back({mask, !isTrue});
    } else if (!isa<arith::ExtFOp, arith::TruncFOp>(last) ||
               !term.isFollowed(last->getOperand(0))) {
      return false;
    }
  }
  found.factor = factor;
  site.read = {followed->get(), labels.lookup(followed->get())};
  return true;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds what is exponentiated, scores that are scaled, biased and masked, and
// what probabilities are multiplied with.

#include "AttentionScores.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/ElementWise.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;

std::optional<double> bsr::getConstant(Value value) {
  // What is the same everywhere, but for copies and broadcasts of it.
  while (Operation *op = value.getDefiningOp()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (generic && isPointwise(generic) && getYieldedInput(generic))
      value = getYieldedInput(generic)->get();
    else if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op))
      value = op->getOperand(0);
    else
      break;
  }
  auto type = dyn_cast<RankedTensorType>(value.getType());
  auto constant = value.getDefiningOp<arith::ConstantOp>();
  if (type && !value.getDefiningOp<linalg::FillOp>() &&
      !(constant && isa<SplatElementsAttr>(constant.getValue())))
    return std::nullopt;
  EntryValues values(
      [](Value, ArrayRef<int64_t>) { return std::optional<double>(); });
  return values.get(value, SmallVector<int64_t>(type ? type.getRank() : 0, 0));
}

namespace {
/// A body of one operation, of which one operand is what was followed. What it
/// takes may be widened first: a bias in bf16 to the f32 of scores.
class Term {
public:
  Term(AttentionScores &scores, linalg::GenericOp op, Value followed,
       const Labels &loops)
      : scores(scores), op(op), followed(followed), loops(loops) {}

  /// The operation, or null if there are several.
  Operation *getOperation() {
    Operation *last =
        op.getBody()->getTerminator()->getOperand(0).getDefiningOp();
    bool isOne =
        last && last->getBlock() == op.getBody() &&
        llvm::all_of(op.getBody()->without_terminator(), [&](Operation &each) {
          return &each == last || isa<arith::ExtFOp>(each);
        });
    return isOne ? last : nullptr;
  }
  bool isFollowed(Value value) {
    auto argument = dyn_cast<BlockArgument>(getNarrow(value));
    return argument && argument.getOwner() == op.getBody() &&
           argument.getArgNumber() < op.getNumDpsInputs() &&
           op->getOperand(argument.getArgNumber()) == followed;
  }
  /// The tensor that `value` is an element of, or null if it is no tensor or
  /// depends on the scores.
  LabelledTensor getTensor(Value value) {
    auto argument = dyn_cast<BlockArgument>(getNarrow(value));
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
    LabelledTensor tensor = getTensor(value);
    return tensor ? getConstant(tensor.tensor) : std::nullopt;
  }

private:
  /// `value` before it was widened.
  static Value getNarrow(Value value) {
    auto widened = value.getDefiningOp<arith::ExtFOp>();
    return widened ? widened.getIn() : value;
  }

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
  if (!loops || !areNamed(op, *loops))
    return false;
  Block *body = op.getBody();
  Term term(*this, op, score, *loops);
  Value yielded = body->getTerminator()->getOperand(0);
  if (term.isFollowed(yielded))
    return true;
  Operation *last = term.getOperation();
  if (!last)
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
    LabelledTensor bias = term.getTensor(last->getOperand(isFirst ? 1 : 0));
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
    LabelledTensor mask = term.getTensor(select.getCondition());
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
/// element by element before its rows are reduced, reshaped or not.
void AttentionScores::findTerms() {
  Value score = found.scores->getResult(0);
  while (true) {
    Operation *next = nullptr;
    for (Operation *user : score.getUsers())
      if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(user) &&
          labels.count(user->getResult(0)))
        next = user;
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
  if (!loops || !followed || !areNamed(op, *loops))
    return false;
  Term term(*this, op, followed->get(), *loops);
  AttentionMatch::Factor factor = found.factor;
  Value yielded = body->getTerminator()->getOperand(0);
  if (!term.isFollowed(yielded)) {
    Operation *last = term.getOperation();
    if (!last)
      return false;
    if (isa<arith::MulFOp, arith::DivFOp>(last)) {
      bool isFirst = term.isFollowed(last->getOperand(0));
      bool isQuotient = isa<arith::DivFOp>(last);
      if (!isFirst && (isQuotient || !term.isFollowed(last->getOperand(1))))
        return false;
      Value other = last->getOperand(isFirst ? 1 : 0);
      if (std::optional<double> number = term.getNumber(other))
        factor.number *= isQuotient ? 1 / *number : *number;
      else if (LabelledTensor tensor = term.getTensor(other);
               tensor && !isQuotient)
        factor.tensors.push_back(tensor);
      else
        return false;
    } else if (auto select = dyn_cast<arith::SelectOp>(last)) {
      bool isTrue = term.isFollowed(select.getTrueValue());
      Value other = isTrue ? select.getFalseValue() : select.getTrueValue();
      LabelledTensor mask = term.getTensor(select.getCondition());
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

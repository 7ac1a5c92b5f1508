// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds what is exponentiated: scores that are scaled, biased and masked.

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
  auto isScore = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && argument.getOwner() == body &&
           argument.getArgNumber() < op.getNumDpsInputs() &&
           op->getOperand(argument.getArgNumber()) == score;
  };
  auto getTensor = [&](Value value) -> Labelled {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != body ||
        argument.getArgNumber() >= op.getNumDpsInputs())
      return {};
    Value operand = op->getOperand(argument.getArgNumber());
    if (!isa<RankedTensorType>(operand.getType()) || labels.count(operand))
      return {};
    return getOperand(op, argument.getArgNumber(), *loops);
  };
  auto getNumber = [&](Value value) -> std::optional<double> {
    if (value.getParentBlock() != body)
      return getConstant(value);
    Labelled tensor = getTensor(value);
    return tensor ? getConstant(tensor.tensor) : std::nullopt;
  };
  Value yielded = body->getTerminator()->getOperand(0);
  if (isScore(yielded))
    return true;
  Operation *last = yielded.getDefiningOp();
  if (!last || !llvm::hasSingleElement(body->without_terminator()))
    return false;
  if (isa<arith::ExtFOp, arith::TruncFOp>(last))
    return isScore(last->getOperand(0));
  if (isa<arith::MulFOp, arith::DivFOp>(last)) {
    bool isFirst = isScore(last->getOperand(0));
    if (!isFirst && (isa<arith::DivFOp>(last) || !isScore(last->getOperand(1))))
      return false;
    std::optional<double> factor = getNumber(last->getOperand(isFirst ? 1 : 0));
    if (!factor || !found.biases.empty() || !found.masks.empty())
      return false;
    found.scale = isa<arith::DivFOp>(last) ? found.scale / *factor
                                           : found.scale * *factor;
    return true;
  }
  if (isa<arith::AddFOp>(last)) {
    bool isFirst = isScore(last->getOperand(0));
    if (!isFirst && !isScore(last->getOperand(1)))
      return false;
    Labelled bias = getTensor(last->getOperand(isFirst ? 1 : 0));
    if (!bias || !found.masks.empty())
      return false;
    found.biases.push_back(bias);
    return true;
  }
  if (auto select = dyn_cast<arith::SelectOp>(last)) {
    bool isTrue = isScore(select.getTrueValue());
    if (!isTrue && !isScore(select.getFalseValue()))
      return false;
    std::optional<double> fill =
        getNumber(isTrue ? select.getFalseValue() : select.getTrueValue());
    Labelled mask = getTensor(select.getCondition());
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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps that add up gradients over several runs.

#include "Accumulation.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::bsr;

std::optional<std::pair<Value, Value>> bsr::getSummands(Operation *op) {
  if (isa<arith::AddFOp>(op) && isa<RankedTensorType>(op->getResultTypes()[0]))
    return std::pair(op->getOperand(0), op->getOperand(1));
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp || op->getNumResults() != 1 ||
      linalgOp.getNumDpsInputs() != 2 || linalgOp.getNumReductionLoops() ||
      !llvm::all_of(linalgOp.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isIdentity(); }))
    return std::nullopt;
  Block *body = linalgOp.getBlock();
  auto add =
      body->getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  Value first = body->getArgument(0), second = body->getArgument(1);
  if (!add || !((add.getLhs() == first && add.getRhs() == second) ||
                (add.getLhs() == second && add.getRhs() == first)))
    return std::nullopt;
  return std::pair(op->getOperand(0), op->getOperand(1));
}

bool bsr::isRearranged(Operation *op) {
  if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op))
    return true;
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp || op->getNumResults() != 1 ||
      linalgOp.getNumDpsInputs() != 1 || linalgOp.getNumReductionLoops() ||
      !llvm::all_of(linalgOp.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isPermutation(); }))
    return false;
  Block *body = linalgOp.getBlock();
  return body->getTerminator()->getOperand(0) == body->getArgument(0);
}

RunWithoutUpdate::RunWithoutUpdate(func::FuncOp step) {
  for (BlockArgument argument : step.getArguments())
    if (StringAttr role = attrs::role.ofArg(step, argument.getArgNumber());
        role && role == "apply")
      apply = argument;
  if (!apply)
    return;
  Builder b(step.getContext());
  Type type = apply.getType();
  known[apply] = isa<RankedTensorType>(type)
                     ? Attribute(b.getZeroAttr(type))
                     : Attribute(b.getZeroAttr(getElementTypeOrSelf(type)));
}

/// The one number of `attr`, of a tensor that of all entries, or null.
static Attribute getNumber(Attribute attr) {
  if (auto elements = dyn_cast_or_null<SplatElementsAttr>(attr))
    return elements.getSplatValue<Attribute>();
  return isa_and_present<IntegerAttr, FloatAttr>(attr) ? attr : Attribute();
}

/// The operand of the linalg operation around `argument` that it is an entry
/// of; null for an argument of something else.
static Value getOperandOf(BlockArgument argument) {
  auto op = dyn_cast<linalg::LinalgOp>(argument.getOwner()->getParentOp());
  return op ? op->getOperand(argument.getArgNumber()) : Value();
}

Attribute RunWithoutUpdate::evaluate(Value value) {
  if (auto it = known.find(value); it != known.end())
    return it->second;
  Attribute attr = compute(value);
  known[value] = attr;
  return attr;
}

Attribute RunWithoutUpdate::compute(Value value) {
  Attribute number;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Value operand = getOperandOf(argument);
    return operand ? getNumber(evaluate(operand)) : Attribute();
  }
  Operation *op = value.getDefiningOp();
  if (matchPattern(op, m_Constant(&number)))
    return number;
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    if (!linalgOp.getNumReductionLoops())
      number =
          getNumber(evaluate(linalgOp.getBlock()->getTerminator()->getOperand(
              cast<OpResult>(value).getResultNumber())));
  } else if (isa<tensor::ExtractOp, tensor::ExpandShapeOp,
                 tensor::CollapseShapeOp>(op)) {
    number = getNumber(evaluate(op->getOperand(0)));
  } else if (!type && op->getNumRegions() == 0 && op->getNumResults() == 1 &&
             op->getNumOperands() && isMemoryEffectFree(op)) {
    SmallVector<Attribute> operands;
    for (Value operand : op->getOperands()) {
      operands.push_back(evaluate(operand));
      if (!operands.back())
        return nullptr;
    }
    SmallVector<OpFoldResult> results;
    if (succeeded(op->fold(operands, results)) && results.size() == 1) {
      number = dyn_cast<Attribute>(results.front());
      if (!number)
        number = getNumber(evaluate(cast<Value>(results.front())));
    }
  }
  if (!number || !type)
    return number;
  return SplatElementsAttr::get(type, number);
}

bool RunWithoutUpdate::dependsOn(Value value, const DenseSet<Value> &from) {
  if (sources != &from)
    found.clear();
  sources = &from;
  return find(value);
}

bool RunWithoutUpdate::find(Value value) {
  if (sources->contains(value))
    return true;
  auto [it, isNew] = found.try_emplace(value, false);
  if (!isNew)
    return it->second;
  auto findAny = [&](ValueRange values) {
    return llvm::any_of(values, [&](Value read) { return find(read); });
  };
  bool depends = false;
  Operation *op = value.getDefiningOp();
  unsigned number = 0;
  if (op)
    number = cast<OpResult>(value).getResultNumber();
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (Value operand = getOperandOf(argument))
      depends = find(operand);
    else
      depends = !isa<func::FuncOp>(argument.getOwner()->getParentOp());
  } else if (auto select = dyn_cast<arith::SelectOp>(op)) {
    auto condition = dyn_cast_or_null<IntegerAttr>(
        getNumber(evaluate(select.getCondition())));
    depends = !condition                      ? findAny(op->getOperands())
              : condition.getValue().isZero() ? find(select.getFalseValue())
                                              : find(select.getTrueValue());
  } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
    auto condition = dyn_cast_or_null<IntegerAttr>(
        getNumber(evaluate(branch.getCondition())));
    bool isThen = condition && !condition.getValue().isZero();
    depends = !condition && find(branch.getCondition());
    if (!condition || isThen)
      depends |= find(branch.thenYield().getOperand(number));
    if (!isThen)
      depends |= find(branch.elseYield().getOperand(number));
  } else if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    depends = find(linalgOp.getBlock()->getTerminator()->getOperand(number));
  } else if (op->getNumRegions()) {
    visitReads(op, [&](Value read) { depends |= find(read); });
  } else {
    depends = findAny(op->getOperands());
  }
  found[value] = depends;
  return depends;
}

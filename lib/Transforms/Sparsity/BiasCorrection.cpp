// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the numbers of a step have to do with how many steps were made.

#include "BiasCorrection.h"
#include "BlockCounts.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

/// Whether `value` is the constant `number`.
static bool isConstant(Value value, double number) {
  TypedAttr constant = getSplat(value);
  if (auto real = dyn_cast_or_null<FloatAttr>(constant))
    return real.getValueAsDouble() == number;
  auto integer = dyn_cast_or_null<IntegerAttr>(constant);
  return integer && double(integer.getValue().getSExtValue()) == number;
}

static bool isCast(Operation *op) {
  return isa_and_nonnull<arith::SIToFPOp, arith::UIToFPOp, arith::FPToSIOp,
                         arith::FPToUIOp, arith::ExtFOp, arith::TruncFOp,
                         arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp,
                         arith::IndexCastOp>(op);
}

/// Whether `op` is a function of numbers, or of tensors entry by entry.
static bool isOfNumbers(Operation *op) {
  return op && isa<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
         op->getNumResults() == 1 && op->getNumRegions() == 0;
}

/// Whether `value` is a number or a tensor without dimensions.
static bool isScalar(Value value) {
  auto type = dyn_cast<ShapedType>(value.getType());
  return !type || (type.hasRank() && type.getRank() == 0);
}

bool BiasCorrections::isUniform(Value value) {
  if (isScalar(value) || getSplat(value))
    return true;
  if (auto known = uniform.find(value); known != uniform.end())
    return known->second;
  Operation *op = value.getDefiningOp();
  bool is = false;
  if (auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op))
    is = isElementWise(linalgOp) &&
         llvm::all_of(linalgOp.getDpsInputs(),
                      [&](Value input) { return isUniform(input); });
  else if (isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op))
    is = isUniform(op->getOperand(0));
  uniform[value] = is;
  return is;
}

Value BiasCorrections::getNumber(Value value) {
  while (true) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto op = dyn_cast<linalg::LinalgOp>(argument.getOwner()->getParentOp());
      if (!op || argument.getArgNumber() >= op.getNumDpsInputs() ||
          !isUniform(op->getOperand(argument.getArgNumber())))
        return value;
      value = op->getOperand(argument.getArgNumber());
      continue;
    }
    Operation *op = value.getDefiningOp();
    if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
      if (!isElementWise(linalgOp) || !isUniform(value))
        return value;
      value = linalgOp.getBlock()->getTerminator()->getOperand(
          cast<OpResult>(value).getResultNumber());
      continue;
    }
    if (!isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::ExtractOp,
             tensor::FromElementsOp>(op) ||
        (op->getNumOperands() != 1 && !isa<tensor::ExtractOp>(op)) ||
        !isUniform(op->getOperand(0)))
      return value;
    value = op->getOperand(0);
  }
}

/// The number of `value`, whatever its type is changed to.
Value BiasCorrections::strip(Value value) {
  value = getNumber(value);
  while (isCast(value.getDefiningOp()))
    value = getNumber(value.getDefiningOp()->getOperand(0));
  return value;
}

/// Whether `next` is `state` + 1, or, in some cases, `state` or a constant, the
/// largest count. One that begins again at 0 counts something else.
bool BiasCorrections::countsOn(Value next, BlockArgument state) {
  Operation *op = strip(next).getDefiningOp();
  auto isOther = [&](Value value) {
    value = strip(value);
    return value == state || (getSplat(value) && !isConstant(value, 0));
  };
  if (isa_and_nonnull<arith::AddFOp, arith::AddIOp>(op))
    for (unsigned i : {0, 1})
      if (strip(op->getOperand(i)) == state &&
          isConstant(strip(op->getOperand(1 - i)), 1))
        return true;
  if (isa_and_nonnull<arith::SelectOp, arith::MinSIOp, arith::MinUIOp,
                      arith::MinimumFOp, arith::MinNumFOp>(op)) {
    Value one = op->getOperand(op->getNumOperands() - 2),
          two = op->getOperand(op->getNumOperands() - 1);
    return (countsOn(one, state) && (isOther(two) || countsOn(two, state))) ||
           (isOther(one) && countsOn(two, state));
  }
  return false;
}

/// Whether `next` is `state` times something, or, in some cases, `state`.
bool BiasCorrections::multipliesOn(Value next, BlockArgument state) {
  Operation *op = strip(next).getDefiningOp();
  if (isa_and_nonnull<arith::MulFOp>(op))
    return strip(op->getOperand(0)) == state ||
           strip(op->getOperand(1)) == state;
  if (auto select = dyn_cast_or_null<arith::SelectOp>(op)) {
    Value one = select.getTrueValue(), two = select.getFalseValue();
    return (multipliesOn(one, state) && strip(two) == state) ||
           (strip(one) == state && multipliesOn(two, state));
  }
  return false;
}

/// Whether front ends count in numbers of `type`.
static bool isCounting(Type type) {
  return type.isInteger(32) || type.isInteger(64) || type.isF32() ||
         type.isF64();
}

BiasCorrections::BiasCorrections(func::FuncOp step) : step(step) {
  for (BlockArgument argument : step.getArguments()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    if (!type || type.getRank() != 0 || !isCounting(type.getElementType()) ||
        !attrs::result.ofArg(step, argument.getArgNumber()))
      continue;
    Value after = getNextValue(step, argument);
    bool isCount = countsOn(after, argument);
    if (!isCount && !multipliesOn(after, argument))
      continue;
    (isCount ? counts : products).insert(argument);
    next[strip(after)] = argument;
  }
  step.walk([&](Operation *op) {
    if (op->getNumResults() != 1 || !isOneMinus(op))
      return;
    Value subtracted = op->getOperand(isConstant(strip(op->getOperand(0)), 1));
    if (Operation *negation = getNumber(subtracted).getDefiningOp();
        isa_and_nonnull<arith::NegFOp>(negation))
      subtracted = negation->getOperand(0);
    corrected.insert(getKey(subtracted));
  });
  parts.clear();
  unknown = nullptr;
  isComplete = true;
}

/// The same for numbers that are computed alike.
size_t BiasCorrections::hash(Value value) {
  value = strip(value);
  if (TypedAttr constant = getSplat(value))
    return mlir::hash_value(constant);
  Operation *op = value.getDefiningOp();
  if (!isOfNumbers(op))
    return mlir::hash_value(value);
  llvm::hash_code code = mlir::hash_value(op->getName());
  for (Value operand : op->getOperands())
    code = llvm::hash_combine(code, hash(operand));
  return code;
}

/// The key of `power`, a power or a product.
BiasCorrections::Key BiasCorrections::getKey(Value power) {
  Value value = strip(power);
  Operation *op = value.getDefiningOp();
  if (auto known = next.find(value); known != next.end())
    return {mlir::hash_value(Value(known->second)), 0};
  if (!op)
    return {mlir::hash_value(value), 0};
  if (isa<math::PowFOp, math::FPowIOp>(op))
    return {hash(op->getOperand(0)), hash(op->getOperand(1))};
  if (isa<math::ExpOp, math::Exp2Op>(op))
    return {mlir::hash_value(op->getName()), hash(op->getOperand(0))};
  // A multiple of one.
  for (Value operand : op->getOperands())
    if (Part part = getPart(operand);
        part == Part::Power || part == Part::Product)
      return getKey(operand);
  return {};
}

/// Whether one minus `subtracted` corrects bias.
bool BiasCorrections::isCorrecting(Value subtracted) {
  Part part = getPart(subtracted);
  if (part == Part::Product)
    return true;
  if (part != Part::Power)
    return false;
  Operation *op = strip(subtracted).getDefiningOp();
  if (isa<math::PowFOp, math::FPowIOp, math::ExpOp, math::Exp2Op>(op))
    return true;
  // The momentum of NAdam is b (1 - .96^(t c) / 2). No other factor is known:
  // 1 - lr d, where the rate lr is a power, is a decay.
  if (isa<arith::DivFOp>(op))
    return isConstant(strip(op->getOperand(1)), 2);
  return isa<arith::MulFOp>(op) &&
         llvm::any_of(op->getOperands(), [&](Value factor) {
           return isConstant(strip(factor), 0.5);
         });
}

/// Whether `op` is 1 - x or x - 1, of an x for which that corrects bias.
bool BiasCorrections::isOneMinus(Operation *op) {
  if (!isa<arith::SubFOp, arith::AddFOp>(op))
    return false;
  Value one = op->getOperand(0), x = op->getOperand(1);
  if (!isConstant(strip(one), 1))
    std::swap(one, x);
  if (!isConstant(strip(one), 1))
    return false;
  if (isa<arith::SubFOp>(op))
    return isCorrecting(x);
  Operation *negation = getNumber(x).getDefiningOp();
  return isa_and_nonnull<arith::NegFOp>(negation) &&
         isCorrecting(negation->getOperand(0));
}

Part BiasCorrections::getPart(Value value) {
  value = getNumber(value);
  if (auto known = parts.find(value); known != parts.end())
    return known->second;
  Part part = compute(value);
  parts[value] = part;
  return part;
}

bool BiasCorrections::isOfBlocks(Value value) {
  Part part = getPart(value);
  return part == Part::Power || part == Part::CountPower ||
         part == Part::Product || part == Part::Correction;
}

bool BiasCorrections::isOwn(OpOperand &operand) {
  Operation *op = operand.getOwner();
  Part part = getPart(operand.get()), result = getPart(op->getResult(0));
  if (isOfBlocks(operand.get()))
    return true;
  if (part == Part::Schedule)
    return result == Part::Count || result == Part::Schedule;
  if (part != Part::Count)
    return false;
  return result != Part::Correction || isa<math::ExpM1Op>(op);
}

Part BiasCorrections::compute(Value value) {
  if (getSplat(value))
    return Part::Fixed;
  if (!isScalar(value))
    return Part::Blocks;
  auto ifCorrected = [&](Part part) {
    bool is = !isComplete || corrected.contains(getKey(value));
    return is ? part : Part::Schedule;
  };
  if (isa<BlockArgument>(value)) {
    if (products.contains(value))
      return ifCorrected(Part::Product);
    bool isOfStep = value.getParentBlock() == &step.getBody().front();
    return counts.contains(value)                         ? Part::Count
           : isOfStep || isa<ShapedType>(value.getType()) ? Part::Fixed
                                                          : Part::Blocks;
  }
  Operation *op = value.getDefiningOp();
  if (!isOfNumbers(op)) {
    visitReads(op, [&](Value read) {
      if (isScalar(read) && isOfBlocks(read))
        unknown = op;
    });
    bool isOfEntries = llvm::any_of(op->getOperands(), [&](Value operand) {
      return !isa<ShapedType>(operand.getType()) &&
             getPart(operand) == Part::Blocks;
    });
    return isOfEntries ? Part::Blocks : Part::Fixed;
  }
  SmallVector<Part> of;
  for (Value operand : op->getOperands())
    of.push_back(getPart(operand));
  if (llvm::is_contained(of, Part::Blocks))
    return Part::Blocks;
  if (llvm::all_equal(of) && of[0] == Part::Fixed)
    return Part::Fixed;
  if (isOneMinus(op))
    return Part::Correction;
  if (auto known = next.find(value); known != next.end())
    return getPart(known->second);
  Part part = combine(op, of);
  return part == Part::Power ? ifCorrected(part) : part;
}

/// What `op` makes of operands that are `parts`, of which one is not fixed.
Part BiasCorrections::combine(Operation *op, ArrayRef<Part> parts) {
  auto isOne = [&](Part part) { return llvm::is_contained(parts, part); };
  // All but one operand, which is `part`, are fixed.
  auto isOnly = [&](Part part) {
    return llvm::count(parts, Part::Fixed) + 1 == int64_t(parts.size()) &&
           isOne(part);
  };
  auto areAll = [&](Part part) {
    return llvm::all_of(parts, [&](Part other) {
      return other == Part::Fixed || other == part;
    });
  };
  if (isCast(op))
    return parts[0];
  if (isa<math::PowFOp, math::FPowIOp>(op) && isOnly(Part::Count))
    return parts[1] == Part::Count ? Part::Power : Part::Schedule;
  if (isa<math::ExpOp, math::Exp2Op>(op) && isOne(Part::Count))
    return Part::Power;
  if (isa<math::ExpM1Op>(op) && isOne(Part::Count))
    return Part::Correction;
  if (isa<arith::NegFOp>(op) && !isOne(Part::Schedule))
    return parts[0];
  if (isa<arith::AddFOp, arith::SubFOp, arith::AddIOp, arith::SubIOp,
          arith::MinSIOp, arith::MinUIOp, arith::MinimumFOp, arith::MinNumFOp,
          arith::MaxSIOp, arith::MaxUIOp, arith::MaximumFOp, arith::MaxNumFOp>(
          op) &&
      areAll(Part::Count))
    return Part::Count;
  bool isMul = isa<arith::MulFOp, arith::MulIOp>(op);
  if (isMul || (isa<arith::DivFOp>(op) && parts[1] == Part::Fixed))
    for (Part part : {Part::Count, Part::Power, Part::CountPower})
      if (isOnly(part))
        return part;
  if (isMul && isOne(Part::Count) && isOne(Part::Power))
    return Part::CountPower;
  if (isMul && isOne(Part::Product) && isOne(Part::Correction))
    return Part::Product;
  if (isa<arith::SelectOp>(op) && parts[0] != Part::Correction)
    for (Part part : {Part::Count, Part::Product})
      if (isOne(part) && llvm::all_of(parts.drop_front(), [&](Part other) {
            return other == part || other == Part::Fixed;
          }))
        return part;
  if (isOne(Part::Correction))
    return Part::Correction;
  if (isOne(Part::Power) || isOne(Part::CountPower) || isOne(Part::Product))
    unknown = op;
  return Part::Schedule;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives integer operations a result wherever LLVM's have none.

#include "bsr/Codegen/Common/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include <cmath>

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRDEFINEINTEGERS
#include "bsr/Codegen/Common/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using arith::CmpFPredicate;
using arith::CmpIPredicate;

static unsigned getWidth(Type type) {
  return getElementTypeOrSelf(type).getIntOrFloatBitWidth();
}

/// `value`, or a vector of it in the shape of `type`.
static Value createConstant(OpBuilder &b, Location loc, Type type,
                            const APInt &value) {
  TypedAttr attr = b.getIntegerAttr(getElementTypeOrSelf(type), value);
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(b, loc, attr);
}

static Value createConstant(OpBuilder &b, Location loc, Type type,
                            double value) {
  TypedAttr attr = b.getFloatAttr(getElementTypeOrSelf(type), value);
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(b, loc, attr);
}

/// Takes the number next to what a float is; a NaN is 0.
static void saturate(Operation *op) {
  OpBuilder b(op);
  Location loc = op->getLoc();
  Value x = op->getOperand(0);
  Type type = op->getResult(0).getType();
  // f32 has the powers of two of all types.
  if (getWidth(x.getType()) < 32) {
    Type f32 = b.getF32Type();
    if (auto vector = dyn_cast<VectorType>(x.getType()))
      f32 = vector.clone(f32);
    x = arith::ExtFOp::create(b, loc, f32, x);
  }
  unsigned width = getWidth(type);
  bool isSigned = isa<arith::FPToSIOp>(op);
  APInt least = isSigned ? APInt::getSignedMinValue(width) : APInt(width, 0);
  APInt largest =
      isSigned ? APInt::getSignedMaxValue(width) : APInt::getMaxValue(width);
  Value low = createConstant(b, loc, x.getType(),
                             isSigned ? least.signedRoundToDouble() : 0);
  Value high =
      createConstant(b, loc, x.getType(), std::ldexp(1.0, width - isSigned));
  Value isLow = arith::CmpFOp::create(b, loc, CmpFPredicate::OLT, x, low);
  Value isHigh = arith::CmpFOp::create(b, loc, CmpFPredicate::OGE, x, high);
  Value isAbove = arith::CmpFOp::create(b, loc, CmpFPredicate::OGE, x, low);
  Value isBelow = arith::CmpFOp::create(b, loc, CmpFPredicate::OLT, x, high);
  Value isInside = arith::AndIOp::create(b, loc, isAbove, isBelow);
  op->setOperand(
      0, arith::SelectOp::create(b, loc, isInside, x,
                                 createConstant(b, loc, x.getType(), 0.0)));
  b.setInsertionPointAfter(op);
  Value y = arith::SelectOp::create(
      b, loc, isLow, createConstant(b, loc, type, least), op->getResult(0));
  Operation *first = y.getDefiningOp();
  y = arith::SelectOp::create(b, loc, isHigh,
                              createConstant(b, loc, type, largest), y);
  op->getResult(0).replaceAllUsesExcept(y, first);
}

/// Divides by one instead of zero, and the least number instead of by -1.
static void guardDivision(Operation *op) {
  APInt constant;
  if (matchPattern(op->getOperand(1), m_ConstantInt(&constant)) &&
      !constant.isZero() && !constant.isAllOnes())
    return;
  OpBuilder b(op);
  Location loc = op->getLoc();
  Value x = op->getOperand(0), y = op->getOperand(1);
  Type type = x.getType();
  unsigned width = getWidth(type);
  auto isEqual = [&](Value value, const APInt &to) -> Value {
    return arith::CmpIOp::create(b, loc, CmpIPredicate::eq, value,
                                 createConstant(b, loc, type, to));
  };
  Value isZero = isEqual(y, APInt(width, 0));
  Value isOne = isZero;
  if (isa<arith::CeilDivSIOp, arith::DivSIOp, arith::FloorDivSIOp,
          arith::RemSIOp>(op)) {
    Value isLeast = isEqual(x, APInt::getSignedMinValue(width));
    Value isMinusOne = isEqual(y, APInt::getAllOnes(width));
    Value overflows = arith::AndIOp::create(b, loc, isLeast, isMinusOne);
    isOne = arith::OrIOp::create(b, loc, isZero, overflows);
  }
  op->setOperand(
      1, arith::SelectOp::create(
             b, loc, isOne, createConstant(b, loc, type, APInt(width, 1)), y));
  b.setInsertionPointAfter(op);
  Value atZero = x;
  if (!isa<arith::RemSIOp, arith::RemUIOp>(op))
    atZero = createConstant(b, loc, type, APInt::getAllOnes(width));
  auto result =
      arith::SelectOp::create(b, loc, isZero, atZero, op->getResult(0));
  op->getResult(0).replaceAllUsesExcept(result, result);
}

/// Shifts everything out where the distance is the width or more.
static void guardShift(Operation *op) {
  Value x = op->getOperand(0), distance = op->getOperand(1);
  Type type = x.getType();
  unsigned width = getWidth(type);
  APInt constant;
  if (matchPattern(distance, m_ConstantInt(&constant)) && constant.ult(width))
    return;
  OpBuilder b(op);
  Location loc = op->getLoc();
  Value last = createConstant(b, loc, type, APInt(width, width - 1));
  Value isFar =
      arith::CmpIOp::create(b, loc, CmpIPredicate::ugt, distance, last);
  op->setOperand(1, arith::SelectOp::create(b, loc, isFar, last, distance));
  // Of a number with a sign the sign is left.
  if (isa<arith::ShRSIOp>(op))
    return;
  b.setInsertionPointAfter(op);
  auto result = arith::SelectOp::create(
      b, loc, isFar, createConstant(b, loc, type, APInt(width, 0)),
      op->getResult(0));
  op->getResult(0).replaceAllUsesExcept(result, result);
}

namespace {
struct DefineIntegers : bsr::impl::BSRDefineIntegersBase<DefineIntegers> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation()->walk([&](Operation *op) {
      // The compiler's own indices are in range.
      if (isa<arith::CeilDivSIOp, arith::CeilDivUIOp, arith::DivSIOp,
              arith::DivUIOp, arith::FloorDivSIOp, arith::FPToSIOp,
              arith::FPToUIOp, arith::RemSIOp, arith::RemUIOp, arith::ShLIOp,
              arith::ShRSIOp, arith::ShRUIOp>(op) &&
          !getElementTypeOrSelf(op->getResult(0)).isIndex())
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      if (isa<arith::FPToSIOp, arith::FPToUIOp>(op))
        saturate(op);
      else if (isa<arith::ShLIOp, arith::ShRSIOp, arith::ShRUIOp>(op))
        guardShift(op);
      else
        guardDivision(op);
    }
  }
};
} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes arithmetic of numbers, or of vectors of them, as one writes formulas.

#ifndef BSR_CODEGEN_COMMON_NUMBERBUILDER_H
#define BSR_CODEGEN_COMMON_NUMBERBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::bsr {

/// `x * y + z` of floats, in one rounding where the processor has that. The
/// pass `bsr-fast-math` lets nothing else become one operation.
Value createMultiplyAdd(OpBuilder &b, Location loc, Value x, Value y, Value z);

/// Numbers, or vectors of them: what is written once is written for both.
class NumberBuilder : public ImplicitLocOpBuilder {
public:
  /// Writes before `op`, in the shape of its result.
  explicit NumberBuilder(Operation *op)
      : NumberBuilder(op, op->getResult(0).getType()) {}
  /// Writes before `op`, in `shape`: numbers, or vectors as this one.
  NumberBuilder(Operation *op, Type shape)
      : ImplicitLocOpBuilder(op->getLoc(), op), shape(shape) {}
  /// Writes where `b` does.
  NumberBuilder(OpBuilder &b, Location loc, Type shape)
      : ImplicitLocOpBuilder(loc, b), shape(shape) {}

  /// `element`, or a vector of it.
  Type as(Type element) const;

  Value constant(TypedAttr value);
  Value f32(double value) { return constant(getF32FloatAttr(value)); }
  Value f64(double value) { return constant(getF64FloatAttr(value)); }
  Value i32(int32_t value) { return constant(getI32IntegerAttr(value)); }
  Value i64(int64_t value) { return constant(getI64IntegerAttr(value)); }

  /// Of floats or of integers.
  Value add(Value x, Value y);
  Value sub(Value x, Value y);
  Value mul(Value x, Value y);
  Value multiplyAdd(Value x, Value y, Value z) {
    return createMultiplyAdd(*this, getLoc(), x, y, z);
  }
  /// The polynomial of f32 `coefficients`, that of the constant first.
  Value polynomial(Value x, ArrayRef<double> coefficients);
  /// `x` by `bits` to the left.
  Value shl(Value x, int64_t bits);
  Value bitcast(Value x, Type element) {
    return arith::BitcastOp::create(*this, as(element), x);
  }
  Value compare(arith::CmpFPredicate kind, Value x, Value y) {
    return arith::CmpFOp::create(*this, kind, x, y);
  }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(*this, condition, x, y);
  }

private:
  Type shape;
};

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_NUMBERBUILDER_H

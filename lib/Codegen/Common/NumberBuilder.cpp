// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes arithmetic of numbers, or of vectors of them, as one writes formulas.

#include "bsr/Codegen/Common/NumberBuilder.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::bsr;

Value bsr::createMultiplyAdd(OpBuilder &b, Location loc, Value x, Value y,
                             Value z) {
  auto flags = arith::FastMathFlagsAttr::get(b.getContext(),
                                             arith::FastMathFlags::contract);
  Value product = arith::MulFOp::create(b, loc, x, y, flags);
  return arith::AddFOp::create(b, loc, product, z, flags);
}

Type NumberBuilder::as(Type element) const {
  auto vector = dyn_cast<VectorType>(shape);
  return vector ? Type(vector.clone(element)) : element;
}

Value NumberBuilder::constant(TypedAttr value) {
  if (auto vector = dyn_cast<VectorType>(shape))
    value = DenseElementsAttr::get(vector.clone(value.getType()), value);
  return arith::ConstantOp::create(*this, value);
}

static bool isFloat(Value x) { return isa<FloatType>(getElementTypeOrSelf(x)); }

Value NumberBuilder::add(Value x, Value y) {
  if (isFloat(x))
    return arith::AddFOp::create(*this, x, y);
  return arith::AddIOp::create(*this, x, y);
}

Value NumberBuilder::sub(Value x, Value y) {
  if (isFloat(x))
    return arith::SubFOp::create(*this, x, y);
  return arith::SubIOp::create(*this, x, y);
}

Value NumberBuilder::mul(Value x, Value y) {
  if (isFloat(x))
    return arith::MulFOp::create(*this, x, y);
  return arith::MulIOp::create(*this, x, y);
}

Value NumberBuilder::shl(Value x, int64_t bits) {
  Type type = getElementTypeOrSelf(x);
  return arith::ShLIOp::create(*this, x, constant(getIntegerAttr(type, bits)));
}

Value NumberBuilder::polynomial(Value x, ArrayRef<double> coefficients) {
  Value y = f32(coefficients.back());
  for (double coefficient : llvm::reverse(coefficients.drop_back()))
    y = multiplyAdd(y, x, f32(coefficient));
  return y;
}

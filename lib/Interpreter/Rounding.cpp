// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "bsr/Interpreter/Rounding.h"

#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/APFloat.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::interpreter;

double interpreter::getRoundoff(FloatType type) {
  int bits = int(type.getFPMantissaWidth());
  return std::ldexp(type.isF64() ? 4 : 1, -bits);
}

/// True if the result of `op`, of floats, needs no rounding.
static bool isExact(Operation *op) {
  return isa<arith::SelectOp, arith::MaximumFOp, arith::MinimumFOp,
             arith::MaxNumFOp, arith::MinNumFOp, arith::NegFOp, arith::ExtFOp,
             arith::BitcastOp, math::AbsFOp, math::CopySignOp, math::CeilOp,
             math::FloorOp, math::RoundOp, math::RoundEvenOp, math::TruncOp,
             BarrierOp>(op);
}

/// The type that the result of `op` is rounded to, or null.
static FloatType getRoundedType(Operation *op) {
  if (op->getNumResults() != 1 || isExact(op))
    return {};
  return dyn_cast<FloatType>(getElementTypeOrSelf(op->getResult(0)));
}

ScalarFunction interpreter::roundResult(Operation *op,
                                        ScalarFunction function) {
  FloatType type = getRoundedType(op);
  if (!function || !type || type.isF64())
    return function;
  return
      [function = std::move(function),
       &semantics = type.getFloatSemantics()](const Number *in, Number *out) {
        function(in, out);
        out->real = interpreter::round(out->real, semantics);
      };
}

ScalarFunction Rounding::change(Operation *op, ScalarFunction function) {
  FloatType type = getRoundedType(op);
  if (!function || !type)
    return function;
  double roundoff = getRoundoff(type);
  double largest =
      llvm::APFloat::getLargest(type.getFloatSemantics()).convertToDouble();
  return [=, function = std::move(function)](const Number *in, Number *out) {
    function(in, out);
    double share =
        std::uniform_real_distribution<double>(-1, 1)(random) * scale;
    out->real += out->real * roundoff * share;
    if (std::abs(out->real) > largest)
      out->real = std::copysign(INFINITY, out->real);
  };
}

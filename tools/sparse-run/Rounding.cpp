// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Rounding.h"

#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/APFloat.h"
#include <cmath>

using namespace tools;
using namespace mlir;

double tools::getRoundoff(FloatType type) {
  int bits = int(type.getFPMantissaWidth());
  return std::ldexp(type.isF64() ? 4 : 1, -bits);
}

/// True if the result of `op`, of floats, needs no rounding.
static bool isExact(Operation *op) {
  return isa<arith::SelectOp, arith::MaximumFOp, arith::MinimumFOp,
             arith::MaxNumFOp, arith::MinNumFOp, arith::NegFOp, arith::ExtFOp,
             arith::BitcastOp, math::AbsFOp, math::CopySignOp, math::CeilOp,
             math::FloorOp, math::RoundOp, math::RoundEvenOp, math::TruncOp,
             bsr::BarrierOp>(op);
}

ScalarFunction Rounding::change(Operation *op, ScalarFunction function) {
  if (!function || op->getNumResults() != 1 || isExact(op))
    return function;
  auto type = dyn_cast<FloatType>(getElementTypeOrSelf(op->getResult(0)));
  if (!type)
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

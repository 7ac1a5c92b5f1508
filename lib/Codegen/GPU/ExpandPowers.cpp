// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes powers without a C library: 2^(y log2 |x|) in f64.

#include "bsr/Codegen/GPU/Core/Doubles.h"
#include "bsr/Codegen/GPU/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <cmath>

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREXPANDPOWERS
#include "bsr/Codegen/GPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;
using arith::CmpFPredicate;

/// log2(x) of x >= 0, to 2^-50 of it: x = 2^e m with m from sqrt(1/2) to
/// sqrt(2), and log(m) = 2 atanh((m - 1) / (m + 1)).
static Value log2(Doubles &b, Value x) {
  Value isSubnormal = b.compare(CmpFPredicate::OLT, x, 0x1p-1022);
  Value normal = b.select(isSubnormal, b.mul(x, b.f64(0x1p54)), x);
  Value bits = b.bitcast(normal, b.getI64Type());
  // What is added to the bits of sqrt(1/2) is 0 or more: e counts from there.
  constexpr int64_t root = 0x3FE6A09E667F3BCD;
  Value above = b.sub(bits, b.i64(root));
  Value e = arith::ShRSIOp::create(b, above, b.i64(52));
  Value shifted = b.shl(e, 52);
  Value m = b.bitcast(b.sub(bits, shifted), b.getF64Type());
  Value numerator = b.sub(m, b.f64(1));
  Value s = arith::DivFOp::create(b, numerator, b.add(m, b.f64(1))).getResult();
  SmallVector<double> coefficients; // of atanh(s) / s in s^2
  for (int i = 0; i != 11; ++i)
    coefficients.push_back(2 / std::log(2.0) / (2 * i + 1));
  Value log = b.mul(s, b.polynomial(b.mul(s, s), coefficients));
  e = b.select(isSubnormal, b.sub(e, b.i64(54)), e);
  log = b.add(arith::SIToFPOp::create(b, x.getType(), e), log);
  log = b.select(b.compare(CmpFPredicate::OEQ, x, 0), -INFINITY, log);
  return b.select(b.compare(CmpFPredicate::OEQ, x, INFINITY), INFINITY, log);
}

/// 2^x, to 2^-50 of it.
static Value exp2(Doubles &b, Value x) {
  // Infinite and zero beyond these.
  x = b.select(b.compare(CmpFPredicate::OGT, x, 1025), 1025, x);
  x = b.select(b.compare(CmpFPredicate::OLT, x, -1080), -1080, x);
  Value n = math::RoundEvenOp::create(b, x);
  SmallVector<double> coefficients; // of 2^f in f, from -1/2 to 1/2
  double term = 1;
  for (int i = 0; i != 14; ++i) {
    coefficients.push_back(term);
    term *= std::log(2.0) / (i + 1);
  }
  Value power = b.polynomial(b.sub(x, n), coefficients);
  // Of NaN some number: the sum keeps it.
  Value isNumber = b.compare(CmpFPredicate::ORD, n, n);
  Value whole = arith::FPToSIOp::create(b, b.getI64Type(),
                                        b.select(isNumber, n, b.f64(0)));
  // 2^n may be no number where its product is one: it is two factors.
  Value half = arith::ShRSIOp::create(b, whole, b.i64(1));
  for (Value part : {half, b.sub(whole, half)}) {
    Value scale = b.shl(b.add(part, b.i64(1023)), 52);
    power = b.mul(power, b.bitcast(scale, b.getF64Type()));
  }
  return power;
}

/// x^y with the special values of C.
static Value pow(Doubles &b, Value x, Value y) {
  Value size = math::AbsFOp::create(b, x), ySize = math::AbsFOp::create(b, y);
  Value power = exp2(b, b.mul(y, log2(b, size)));
  // |x| is 1 where the product is of infinity and zero.
  Value isOne = b.compare(CmpFPredicate::OEQ, size, 1);
  Value isEndless = b.compare(CmpFPredicate::OEQ, ySize, INFINITY);
  power = b.select(b.both(isOne, isEndless), 1, power);

  // Below zero: numbers have no powers but whole ones, odd ones are negative.
  Value floor = math::FloorOp::create(b, y);
  Value isWhole = b.compare(CmpFPredicate::OEQ, floor, y);
  Value half = b.mul(y, b.f64(0.5)), halfFloor = math::FloorOp::create(b, half);
  Value isHalf = b.compare(CmpFPredicate::ONE, halfFloor, half);
  Value isOdd = b.both(isWhole, isHalf);
  Value isBelow = b.both(b.compare(CmpFPredicate::OLT, x, 0),
                         b.compare(CmpFPredicate::OGT, x, -INFINITY));
  Value isFraction = b.compare(CmpFPredicate::ONE, floor, y);
  power = b.select(b.both(isBelow, isFraction), NAN, power);
  power = b.select(isOdd, math::CopySignOp::create(b, power, x), power);

  Value isNaN = b.compare(CmpFPredicate::UNO, x, y);
  power = b.select(isNaN, NAN, power);
  power = b.select(b.compare(CmpFPredicate::OEQ, x, 1), 1, power);
  return b.select(b.compare(CmpFPredicate::OEQ, y, 0), 1, power);
}

namespace {
struct ExpandPowers : bsr::impl::BSRExpandPowersBase<ExpandPowers> {
  using Base::Base;

  void runOnOperation() override {
    getOperation()->walk([](math::PowFOp op) {
      Doubles b(op);
      Value power = b.expand(
          op, [&](ValueRange x) { return pow(b, x[0], x[1]); },
          /*isForF64=*/true);
      if (!power)
        return;
      op.replaceAllUsesWith(power);
      op.erase();
    });
  }
};
} // namespace

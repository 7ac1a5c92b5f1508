// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The exponential function of f32, by a polynomial.
//
// exp(x) = 2^n * exp(r), where |r| <= log(2) / 2.

#include "bsr/Codegen/Common/Exponential.h"

using namespace mlir;
using namespace mlir::bsr;
using arith::CmpFPredicate;

namespace {
/// Of an exponential: a float whose last bits are n plus a bias, and exp(r).
struct Factors {
  Value sum, power;
};
} // namespace

static Factors split(NumberBuilder &b, Value x, int64_t bias) {
  // Adding it leaves an integer.
  Value shift = b.f32(0x1.8p23 + double(bias));
  Value sum = b.multiplyAdd(x, b.f32(0x1.715476p0), shift);
  Value n = b.sub(sum, shift);
  // The product of n and the first part of log(2) is exact.
  Value r = b.multiplyAdd(n, b.f32(-0x1.62e4p-1), x);
  r = b.multiplyAdd(n, b.f32(-1.42860682030941723e-6), r);
  // (exp(r) - 1 - r) / r^2, with the least relative error of exp(r).
  Value y = b.polynomial(
      r, {0.49999994, 0.166665211, 0.041668389, 0.00836872403, 0.00138145825});
  return {sum, b.add(b.multiplyAdd(b.mul(y, r), r, r), b.f32(1))};
}

Value bsr::createExp(NumberBuilder &b, Value x) {
  // Beyond these the result is zero or infinite; a NaN stays one.
  Value least = b.f32(-104), largest = b.f32(89);
  x = b.select(b.compare(CmpFPredicate::OLT, x, least), least, x);
  x = b.select(b.compare(CmpFPredicate::OGT, x, largest), largest, x);
  auto [sum, y] = split(b, x, /*bias=*/0);
  // 2^n may be no number where its product is one: it is two factors.
  Type i32 = b.getI32Type(), f32 = b.getF32Type();
  Value whole = b.sub(b.bitcast(sum, i32), b.i32(0x4B400000));
  Value half = arith::ShRSIOp::create(b, whole, b.i32(1));
  for (Value part : {half, b.sub(whole, half)})
    y = b.mul(y, b.bitcast(b.shl(b.add(part, b.i32(127)), 23), f32));
  return y;
}

Value bsr::createFlushedExp(NumberBuilder &b, Value x) {
  // Below, 2^n is 0: n is -127. A NaN stays one.
  x = arith::MaximumFOp::create(b, x, b.f32(-88));
  // The last bits are the exponent of 2^n.
  auto [sum, y] = split(b, x, /*bias=*/127);
  Value bits = b.shl(b.bitcast(sum, b.getI32Type()), 23);
  return b.mul(y, b.bitcast(bits, b.getF32Type()));
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes sines and cosines of f32 without a C library: the multiple of pi / 2
// and what is left of it in integers, as Payne and Hanek do ("Radian reduction
// for trigonometric functions", 1983).

#include "bsr/Codegen/GPU/Core/Doubles.h"
#include "bsr/Codegen/GPU/Passes.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREXPANDSINES
#include "bsr/Codegen/GPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

namespace {
/// A number as a multiple of pi / 2, of which two bits matter, and a rest.
struct Reduced {
  Value multiple; // i64
  Value rest;     // f64, of at most pi / 4, or 1 if the multiple is 0
};
} // namespace

/// Reduces `x` >= 0, an f32 in f64. With the exponent e of x and its 24 bits m,
/// the bits of 2 / pi up to bit e - 25 behind the point make multiples of
/// 2 pi; of the product of m with the 96 that follow, the first two are the
/// multiple, modulo 4, and the next 62 the rest.
static Reduced reduce(Doubles &b, Value x) {
  Type i64 = b.getI64Type();
  Value bits = arith::BitcastOp::create(b, i64, x);
  Value biased = arith::ShRUIOp::create(b, bits, b.i64(52));
  Value e = arith::SubIOp::create(b, biased, b.i64(1023));
  // Of an f32, the last 29 bits are zero.
  Value fraction =
      arith::AndIOp::create(b, bits, b.i64((int64_t(1) << 52) - 1));
  Value m = arith::OrIOp::create(
      b, arith::ShRUIOp::create(b, fraction, b.i64(29)).getResult(),
      b.i64(1 << 23));
  // 32 zeros, then the bits of 2 / pi behind the point.
  static constexpr int64_t words[] = {0,          0xA2F9836E, 0x4E441529,
                                      0xFC2757D1, 0xF534DDC0, 0xDB629599,
                                      0x3C439041, 0xFE5163AB};
  Value isSmall =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, e, b.i64(0));
  Value bit = arith::AddIOp::create(
      b, arith::SelectOp::create(b, isSmall, b.i64(0), e).getResult(),
      b.i64(7));
  Value number = arith::ShRUIOp::create(b, bit, b.i64(5));
  Value shift = arith::AndIOp::create(b, bit, b.i64(31));
  auto getWord = [&](int64_t after) -> Value {
    Value word = b.i64(words[after]);
    for (int64_t first = 1; first <= 4; ++first) {
      Value isThere = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, number,
                                            b.i64(first));
      word = arith::SelectOp::create(b, isThere, b.i64(words[first + after]),
                                     word);
    }
    return word;
  };
  SmallVector<Value> products;
  for (int64_t after : {0, 1, 2}) {
    Value high = arith::ShLIOp::create(b, getWord(after), b.i64(32));
    Value both = arith::OrIOp::create(b, high, getWord(after + 1));
    Value shifted = arith::ShLIOp::create(b, both, shift);
    Value word = arith::ShRUIOp::create(b, shifted, b.i64(32));
    products.push_back(arith::MulIOp::create(b, m, word));
  }
  Value product = arith::AddIOp::create(
      b, arith::ShLIOp::create(b, products[0], b.i64(32)).getResult(),
      products[1]);
  product = arith::AddIOp::create(
      b, product,
      arith::ShRUIOp::create(b, products[2], b.i64(32)).getResult());
  Value nearest = arith::AddIOp::create(b, product, b.i64(int64_t(1) << 61));
  Value multiple = arith::ShRUIOp::create(b, nearest, b.i64(62));
  Value rest = arith::SubIOp::create(
      b, product, arith::ShLIOp::create(b, multiple, b.i64(62)).getResult());
  Value angle = b.mul(arith::SIToFPOp::create(b, b.getF64Type(), rest),
                      b.f64(0x1.921fb54442d18p0 * 0x1p-62));
  return {arith::SelectOp::create(b, isSmall, b.i64(0), multiple),
          b.select(isSmall, x, angle)};
}

/// The sine of an f32 in f64, or the cosine.
static Value sine(Doubles &b, Value x, bool isCosine) {
  Value size = math::AbsFOp::create(b, x);
  auto [multiple, rest] = reduce(b, size);
  SmallVector<double> sines, cosines; // of x in x^2, divided by x or not
  double term = 1;
  for (int i = 0; i != 11; ++i) {
    cosines.push_back(term);
    sines.push_back(term / (2 * i + 1));
    term /= -(2 * i + 1) * (2 * i + 2);
  }
  Value square = b.mul(rest, rest);
  Value quadrant = arith::AddIOp::create(b, multiple, b.i64(isCosine));
  auto isSet = [&](int64_t bit) -> Value {
    Value set = arith::AndIOp::create(b, quadrant, b.i64(bit));
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, set, b.i64(0));
  };
  Value y = b.select(isSet(1), b.polynomial(square, cosines),
                     b.mul(rest, b.polynomial(square, sines)));
  auto negate = [&](Value y) -> Value { return arith::NegFOp::create(b, y); };
  y = b.select(isSet(2), negate(y), y);
  if (!isCosine) {
    Value bits = arith::BitcastOp::create(b, b.getI64Type(), x);
    Value isNegative =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, bits, b.i64(0));
    y = b.select(isNegative, negate(y), y);
  }
  Value isFinite = b.compare(arith::CmpFPredicate::OLT, size, INFINITY);
  return b.select(isFinite, y, b.f64(NAN));
}

namespace {
struct ExpandSines : bsr::impl::BSRExpandSinesBase<ExpandSines> {
  using Base::Base;

  void runOnOperation() override {
    getOperation()->walk([](Operation *op) {
      if (!isa<math::SinOp, math::CosOp>(op))
        return;
      Doubles b(op);
      Value y = b.expand(op, [&](ValueRange operands) {
        return sine(b, operands.front(), isa<math::CosOp>(op));
      });
      if (!y)
        return;
      op->getResult(0).replaceAllUsesWith(y);
      op->erase();
    });
  }
};
} // namespace

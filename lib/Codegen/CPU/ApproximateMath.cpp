// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes mathematical functions by polynomials, which run in vectors.

#include "bsr/Codegen/CPU/Passes.h"
#include "bsr/Codegen/Common/Exponential.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include <cmath>

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRAPPROXIMATEMATH
#include "bsr/Codegen/CPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;
using arith::CmpFPredicate;

/// True if `op` computes f32, or vectors of them.
static bool isF32(Operation *op) {
  return getElementTypeOrSelf(op->getResult(0)).isF32();
}

namespace {
/// Subnormal results are rounded once, too: upstream's are zero.
struct ApproximateExp : OpRewritePattern<math::ExpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::ExpOp op,
                                PatternRewriter &rewriter) const override {
    if (!isF32(op))
      return failure();
    NumberBuilder b(op);
    b.setListener(rewriter.getListener());
    rewriter.replaceOp(op, createExp(b, op.getOperand()));
    return success();
  }
};

/// x^n for an integer that is a value: the power of |x| with the sign of x
/// where n is odd. It is computed in f64, in which n is a number.
struct ExpandFPowI : OpRewritePattern<math::FPowIOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::FPowIOp op,
                                PatternRewriter &rewriter) const override {
    NumberBuilder b(op);
    b.setListener(rewriter.getListener());
    Type type = op.getType(), wide = b.as(b.getF64Type());
    bool isNarrow = getElementTypeOrSelf(type).getIntOrFloatBitWidth() < 64;
    Value x = op.getLhs(), n = op.getRhs();
    if (isNarrow)
      x = arith::ExtFOp::create(b, wide, x);
    if (getElementTypeOrSelf(n).isIndex())
      n = arith::IndexCastOp::create(b, b.as(b.getI64Type()), n);
    Value magnitude = math::AbsFOp::create(b, x);
    Value power = arith::SIToFPOp::create(b, wide, n);
    Value y = math::PowFOp::create(b, magnitude, power);
    Value isOdd = n;
    if (!getElementTypeOrSelf(n).isInteger(1))
      isOdd = arith::TruncIOp::create(b, b.as(b.getI1Type()), n);
    y = b.select(isOdd, math::CopySignOp::create(b, y, x), y);
    if (isNarrow)
      y = arith::TruncFOp::create(b, type, y);
    rewriter.replaceOp(op, y);
    return success();
  }
};
/// log(1 + x) and exp(x) - 1 of f64, which LLVM has as they stand here and
/// which would be 0 where x is small: Kahan's corrections, with what rounding
/// has left of x in 1 + x, and in exp(x).
template <typename Op>
struct ExpandNearOne : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;

  LogicalResult matchAndRewrite(Op op,
                                PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isF64())
      return failure();
    NumberBuilder b(op);
    b.setListener(rewriter.getListener());
    auto isEqual = [&](Value value, double to) {
      return b.compare(CmpFPredicate::OEQ, value, b.f64(to));
    };
    Value x = op.getOperand(), one = b.f64(1), y;
    if (isa<math::Log1pOp>(op)) {
      Value sum = b.add(x, one);
      Value ratio = arith::DivFOp::create(b, x, b.sub(sum, one));
      y = b.mul(math::LogOp::create(b, sum), ratio);
      y = b.select(isEqual(sum, 1), x, b.select(isEqual(sum, INFINITY), x, y));
    } else {
      Value power = math::ExpOp::create(b, x);
      Value rest = b.sub(power, one);
      Value ratio = arith::DivFOp::create(b, x, math::LogOp::create(b, power));
      y = b.select(isEqual(rest, -1), rest, b.mul(rest, ratio));
      y = b.select(isEqual(power, 1), x,
                   b.select(isEqual(power, INFINITY), power, y));
    }
    rewriter.replaceOp(op, y);
    return success();
  }
};

/// Upstream's expansion of MLIR 22 takes the two bounds for each other.
struct ExpandClamp : OpRewritePattern<math::ClampFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::ClampFOp op,
                                PatternRewriter &rewriter) const override {
    Value y = arith::MinimumFOp::create(rewriter, op.getLoc(), op.getValue(),
                                        op.getMax(), op.getFastmath());
    rewriter.replaceOpWithNewOp<arith::MaximumFOp>(op, y, op.getMin(),
                                                   op.getFastmath());
    return success();
  }
};

/// The one classification that upstream does not lower.
struct ExpandIsInf : OpRewritePattern<math::IsInfOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::IsInfOp op,
                                PatternRewriter &rewriter) const override {
    Type type = op.getOperand().getType();
    auto element = cast<FloatType>(getElementTypeOrSelf(type));
    TypedAttr infinity =
        FloatAttr::get(element, APFloat::getInf(element.getFloatSemantics()));
    if (auto vector = dyn_cast<VectorType>(type))
      infinity = DenseElementsAttr::get(vector, infinity);
    Location loc = op.getLoc();
    Value magnitude = math::AbsFOp::create(rewriter, loc, op.getOperand());
    Value limit = arith::ConstantOp::create(rewriter, loc, infinity);
    rewriter.replaceOpWithNewOp<arith::CmpFOp>(op, CmpFPredicate::OEQ,
                                               magnitude, limit);
    return success();
  }
};
} // namespace

/// Makes a logarithm of subnormals one of normal numbers, the only ones that
/// upstream's polynomial takes: log(x) = log(2^25 * x) - 25 * log(2).
static void scaleSubnormals(Operation *op, double log2) {
  NumberBuilder b(op);
  Value x = op->getOperand(0);
  Value isSmall = b.compare(CmpFPredicate::OLT, x, b.f32(0x1p-126));
  op->setOperand(0, b.select(isSmall, b.mul(x, b.f32(0x1p25)), x));
  b.setInsertionPointAfter(op);
  auto y = arith::SubFOp::create(b, op->getResult(0),
                                 b.select(isSmall, b.f32(25 * log2), b.f32(0)));
  op->getResult(0).replaceAllUsesExcept(y, y);
}

/// Computes the sine or the cosine of x: with n, the multiple of pi / 2 next to
/// x, and the remainder, both of f64, it is the sine or the cosine of the
/// remainder with either sign. Above 2^22, which only diverging models
/// reach, it is the C library's.
template <typename Op>
static void reduceToQuadrant(Op op) {
  Value x = op.getOperand();
  if (auto vector = dyn_cast<VectorType>(x.getType()))
    if (vector.getRank() != 1 || vector.isScalable())
      return;
  NumberBuilder b(op);
  Type i32 = b.getI32Type();
  Value isNear =
      b.compare(CmpFPredicate::OLT, math::AbsFOp::create(b, x), b.f32(0x1p22));
  Value near = arith::ExtFOp::create(b, b.as(b.getF64Type()),
                                     b.select(isNear, x, b.f32(0)));
  // The last bits of this sum are n.
  Value shift = b.f64(0x1.8p52);
  Value sum = b.multiplyAdd(near, b.f64(0x1.45f306dc9c883p-1), shift);
  Value n = b.sub(sum, shift);
  // The product of n and the first 30 bits of pi / 2 is exact.
  Value r = b.multiplyAdd(n, b.f64(-0x1.921fb54p0), near);
  r = b.multiplyAdd(n, b.f64(-9.920935796805404e-10), r);
  r = arith::TruncFOp::create(b, x.getType(), r);
  Value square = b.mul(r, r);
  // The products with the remainder come last: the sine of -0 is -0.
  Value sine = b.mul(
      r, b.polynomial(square, {1, -0.166666552, 0.0083321603, -0.00019515217}));
  Value cosine = b.polynomial(
      square, {1, -0.5, 0.0416666456, -0.00138873153, 2.44330804e-05});
  Value quadrant =
      arith::TruncIOp::create(b, b.as(i32), b.bitcast(sum, b.getI64Type()));
  if (isa<math::CosOp>(op))
    quadrant = b.add(quadrant, b.i32(1));
  Value isCosine = arith::TruncIOp::create(b, b.as(b.getI1Type()), quadrant);
  Value y = b.select(isCosine, cosine, sine);
  Value sign = b.shl(arith::AndIOp::create(b, quadrant, b.i32(2)), 30);
  y = b.bitcast(arith::XOrIOp::create(b, b.bitcast(y, i32), sign),
                b.getF32Type());

  Value areNear = isNear;
  if (isa<VectorType>(x.getType()))
    areNear =
        vector::ReductionOp::create(b, vector::CombiningKind::AND, isNear);
  auto branch = scf::IfOp::create(
      b, areNear,
      [&](OpBuilder &inner, Location loc) {
        scf::YieldOp::create(inner, loc, y);
      },
      [&](OpBuilder &inner, Location loc) {
        Value far = Op::create(inner, loc, x);
        scf::YieldOp::create(
            inner, loc,
            arith::SelectOp::create(inner, loc, isNear, y, far).getResult());
      });
  op.replaceAllUsesWith(branch.getResult(0));
  op.erase();
}

/// True if upstream has a polynomial for `name` that is exact to 5 units in the
/// last place. Its arc tangent is exact to 41, its cube root NaN at infinity.
static bool isExact(StringRef name) {
  return llvm::is_contained(
      {math::ErfOp::getOperationName(), math::ErfcOp::getOperationName(),
       math::ExpM1Op::getOperationName(), math::Log1pOp::getOperationName(),
       math::Log2Op::getOperationName(), math::LogOp::getOperationName(),
       math::TanhOp::getOperationName()},
      name);
}

/// True if `name` is computed in vectors of f32.
static bool isApproximated(StringRef name) {
  return isExact(name) || name == math::CosOp::getOperationName() ||
         name == math::ExpOp::getOperationName() ||
         name == math::SinOp::getOperationName();
}

namespace {
struct ApproximateMath : bsr::impl::BSRApproximateMathBase<ApproximateMath> {
  using Base::Base;

  void runOnOperation() override {
    RewritePatternSet simple(&getContext());
    populateMathAlgebraicSimplificationPatterns(simple);
    populateMathF32ExpansionPatterns(simple, isApproximated);
    math::populateExpansionPatterns(simple, {"rsqrt"});
    // Small constants are products.
    simple.add<ExpandFPowI>(&getContext(), /*benefit=*/0);
    simple.add<ExpandClamp, ExpandIsInf, ExpandNearOne<math::ExpM1Op>,
               ExpandNearOne<math::Log1pOp>>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(simple))))
      return signalPassFailure();

    SmallVector<Operation *> ops;
    getOperation()->walk([&](Operation *op) {
      if (isa<math::CosOp, math::LogOp, math::Log2Op, math::SinOp>(op) &&
          isF32(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      if (auto sine = dyn_cast<math::SinOp>(op))
        reduceToQuadrant(sine);
      else if (auto cosine = dyn_cast<math::CosOp>(op))
        reduceToQuadrant(cosine);
      else
        scaleSubnormals(op, isa<math::LogOp>(op) ? 0.693147180559945309 : 1);
    }

    RewritePatternSet patterns(&getContext());
    populateMathPolynomialApproximationPatterns(patterns, isExact);
    patterns.add<ApproximateExp>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
  }
};
} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What operations of arith and math mean for doubles and integers: a table.

#include "bsr/Interpreter/Scalars.h"

#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/ADT/bit.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::interpreter;

static unsigned getWidth(Type type) {
  type = getElementTypeOrSelf(type);
  return type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
}

int64_t interpreter::wrap(int64_t integer, unsigned width) {
  if (width == 1)
    return integer & 1;
  return width >= 64 ? integer : llvm::SignExtend64(uint64_t(integer), width);
}

/// The bits of an integer of `width` bits, as a number from 0.
static uint64_t getBits(int64_t integer, unsigned width) {
  return width >= 64 ? uint64_t(integer)
                     : uint64_t(integer) & ((uint64_t(1) << width) - 1);
}

/// The integer of `width` bits with its sign, which one of one bit has too.
static int64_t getSigned(int64_t integer, unsigned width) {
  return width == 1 ? -integer : integer;
}

/// The double that is nearest to `value`.
static double toDouble(APFloat value) {
  bool isInexact;
  value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven,
                &isInexact);
  return value.convertToDouble();
}

static APFloat fromDouble(double real, const llvm::fltSemantics &semantics) {
  APFloat value(real);
  bool isInexact;
  value.convert(semantics, APFloat::rmNearestTiesToEven, &isInexact);
  return value;
}

double interpreter::round(double real, const llvm::fltSemantics &semantics) {
  return toDouble(fromDouble(real, semantics));
}

Number interpreter::getNumber(Attribute attribute) {
  if (auto real = dyn_cast<FloatAttr>(attribute))
    return fromReal(toDouble(real.getValue()));
  APInt value = cast<IntegerAttr>(attribute).getValue();
  return fromInteger(
      wrap(int64_t(value.zextOrTrunc(64).getZExtValue()), value.getBitWidth()));
}

std::optional<Number> interpreter::getConstantNumber(Operation *op) {
  Attribute constant;
  if (op->getNumOperands() == 0 && matchPattern(op, m_Constant(&constant)) &&
      isa<FloatAttr, IntegerAttr>(constant))
    return getNumber(constant);
  return std::nullopt;
}

/// Functions of one and two floats.
static ScalarFunction makeReal(double (*function)(double)) {
  return [function](const Number *in, Number *out) {
    out->real = function(in[0].real);
  };
}

static ScalarFunction makeReal(double (*function)(double, double)) {
  return [function](const Number *in, Number *out) {
    out->real = function(in[0].real, in[1].real);
  };
}

/// Functions of one and two integers of `width` bits; results are wrapped.
template <typename Function>
static ScalarFunction makeInteger(unsigned width, Function function) {
  return [=](const Number *in, Number *out) {
    out->integer = wrap(int64_t(function(in[0].integer, in[1].integer)), width);
  };
}

template <typename Function>
static ScalarFunction makeUnsigned(unsigned width, Function function) {
  return [=](const Number *in, Number *out) {
    out->integer = wrap(int64_t(function(getBits(in[0].integer, width),
                                         getBits(in[1].integer, width))),
                        width);
  };
}

static double maximum(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? NAN
         : a == b                       ? (std::signbit(a) ? b : a)
                                        : std::max(a, b);
}

static double minimum(double a, double b) { return -maximum(-a, -b); }

static ScalarFunction makeComparison(arith::CmpIOp op) {
  arith::CmpIPredicate predicate = op.getPredicate();
  unsigned width = getWidth(op.getLhs().getType());
  return [=](const Number *in, Number *out) {
    out->integer = arith::applyCmpPredicate(
        predicate, APInt(width, getBits(in[0].integer, width)),
        APInt(width, getBits(in[1].integer, width)));
  };
}

/// The bits of `real` as those of a float of type `type`, and back.
static int64_t encode(double real, FloatType type) {
  APFloat value = fromDouble(real, type.getFloatSemantics());
  return wrap(int64_t(value.bitcastToAPInt().getZExtValue()), type.getWidth());
}

static double decode(int64_t bits, FloatType type) {
  unsigned width = type.getWidth();
  return toDouble(
      APFloat(type.getFloatSemantics(), APInt(width, getBits(bits, width))));
}

static ScalarFunction makeBitcast(arith::BitcastOp op) {
  auto from = dyn_cast<FloatType>(getElementTypeOrSelf(op.getIn().getType()));
  auto to = dyn_cast<FloatType>(getElementTypeOrSelf(op.getType()));
  return [=](const Number *in, Number *out) {
    Number number = *in;
    if (from && !to)
      number.integer = encode(number.real, from);
    else if (to && !from)
      number.real = decode(number.integer, to);
    else if (to)
      number.real = decode(encode(number.real, from), to);
    *out = number;
  };
}

/// Floats that become integers of `width` bits: the nearest ones that there
/// are.
static ScalarFunction makeFromReal(unsigned width, bool isSigned) {
  double least = isSigned ? -std::ldexp(1.0, int(width) - 1) : 0;
  double limit = std::ldexp(1.0, int(isSigned ? width - 1 : width));
  return [=](const Number *in, Number *out) {
    double real = std::trunc(in->real);
    int64_t integer = 0; // NaN
    if (real >= limit)
      integer = isSigned ? int64_t(~uint64_t(0) >> (65 - width)) : -1;
    else if (real <= least)
      integer = isSigned ? int64_t(uint64_t(1) << (width - 1)) : 0;
    else if (!std::isnan(real))
      integer = isSigned ? int64_t(real) : int64_t(uint64_t(real));
    out->integer = wrap(integer, width);
  };
}

/// `base` to the power of an integer.
static double power(double base, int64_t exponent) {
  double result = 1;
  for (uint64_t left = uint64_t(std::abs(exponent)); left; left /= 2) {
    result *= left % 2 ? base : 1;
    base *= base;
  }
  return exponent < 0 ? 1 / result : result;
}

static int64_t powerOfIntegers(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, factor = uint64_t(base);
  for (; exponent; exponent /= 2) {
    result *= exponent % 2 ? factor : 1;
    factor *= factor;
  }
  return int64_t(result);
}

/// The quotient, rounded towards `direction` where it is no integer; 0
/// for a division by 0, which has no meaning.
static int64_t divide(int64_t a, int64_t b, int direction) {
  if (b == 0)
    return 0;
  if (b == -1)
    return int64_t(-uint64_t(a));
  int64_t quotient = a / b;
  bool isInexact = a % b != 0, isNegative = (a < 0) != (b < 0);
  if (isInexact && direction > 0 && !isNegative)
    return quotient + 1;
  if (isInexact && direction < 0 && isNegative)
    return quotient - 1;
  return quotient;
}

/// Functions of floats.
static ScalarFunction getRealFunction(Operation *op) {
  using Result = ScalarFunction;
#define UNARY(OP, EXPRESSION)                                                  \
  .Case([](OP) -> Result {                                                     \
    return makeReal(+[](double x) -> double { return EXPRESSION; });           \
  })
#define BINARY(OP, EXPRESSION)                                                 \
  .Case([](OP) -> Result {                                                     \
    return makeReal(+[](double x, double y) -> double { return EXPRESSION; }); \
  })
#define TEST(OP, EXPRESSION)                                                   \
  .Case([](OP) -> Result {                                                     \
    return [](const Number *in, Number *out) {                                 \
      double x = in->real;                                                     \
      out->integer = EXPRESSION;                                               \
    };                                                                         \
  })
  return llvm::TypeSwitch<Operation *, ScalarFunction>(op)
      // clang-format off
      BINARY(arith::AddFOp, x + y)
      BINARY(arith::SubFOp, x - y)
      BINARY(arith::MulFOp, x * y)
      BINARY(arith::DivFOp, x / y)
      BINARY(arith::RemFOp, std::fmod(x, y))
      BINARY(arith::MaximumFOp, maximum(x, y))
      BINARY(arith::MinimumFOp, minimum(x, y))
      BINARY(arith::MaxNumFOp, std::fmax(x, y))
      BINARY(arith::MinNumFOp, std::fmin(x, y))
      UNARY(arith::NegFOp, -x)
      UNARY(arith::ExtFOp, x)
      UNARY(arith::TruncFOp, x)
      UNARY(math::AbsFOp, std::fabs(x))
      UNARY(math::AcosOp, std::acos(x))
      UNARY(math::AcoshOp, std::acosh(x))
      UNARY(math::AsinOp, std::asin(x))
      UNARY(math::AsinhOp, std::asinh(x))
      UNARY(math::AtanOp, std::atan(x))
      UNARY(math::AtanhOp, std::atanh(x))
      BINARY(math::Atan2Op, std::atan2(x, y))
      UNARY(math::CbrtOp, std::cbrt(x))
      UNARY(math::CeilOp, std::ceil(x))
      BINARY(math::CopySignOp, std::copysign(x, y))
      UNARY(math::CosOp, std::cos(x))
      UNARY(math::CoshOp, std::cosh(x))
      UNARY(math::ErfOp, std::erf(x))
      UNARY(math::ErfcOp, std::erfc(x))
      UNARY(math::ExpOp, std::exp(x))
      UNARY(math::Exp2Op, std::exp2(x))
      UNARY(math::ExpM1Op, std::expm1(x))
      UNARY(math::FloorOp, std::floor(x))
      UNARY(math::LogOp, std::log(x))
      UNARY(math::Log10Op, std::log10(x))
      UNARY(math::Log1pOp, std::log1p(x))
      UNARY(math::Log2Op, std::log2(x))
      BINARY(math::PowFOp, std::pow(x, y))
      UNARY(math::RoundOp, std::round(x))
      UNARY(math::RoundEvenOp, std::nearbyint(x))
      UNARY(math::RsqrtOp, 1 / std::sqrt(x))
      UNARY(math::SinOp, std::sin(x))
      UNARY(math::SinhOp, std::sinh(x))
      UNARY(math::SqrtOp, std::sqrt(x))
      UNARY(math::TanOp, std::tan(x))
      UNARY(math::TanhOp, std::tanh(x))
      UNARY(math::TruncOp, std::trunc(x))
      TEST(math::IsFiniteOp, std::isfinite(x))
      TEST(math::IsInfOp, std::isinf(x))
      TEST(math::IsNaNOp, std::isnan(x))
      .Case([](math::IsNormalOp op) -> Result {
        auto type = cast<FloatType>(getElementTypeOrSelf(op.getOperand()));
        double least = toDouble(
            APFloat::getSmallestNormalized(type.getFloatSemantics()));
        return [least](const Number *in, Number *out) {
          double x = in->real;
          out->integer = std::isfinite(x) && std::fabs(x) >= least;
        };
      })
      .Case([](math::FmaOp) -> Result {
        return [](const Number *in, Number *out) {
          out->real = std::fma(in[0].real, in[1].real, in[2].real);
        };
      })
      .Case([](math::ClampFOp) -> Result {
        return [](const Number *in, Number *out) {
          out->real =
              maximum(minimum(in[0].real, in[2].real), in[1].real);
        };
      })
      .Case([](math::SincosOp) -> Result {
        return [](const Number *in, Number *out) {
          out[0].real = std::sin(in->real);
          out[1].real = std::cos(in->real);
        };
      })
      .Case([](math::FPowIOp) -> Result {
        return [](const Number *in, Number *out) {
          out->real = power(in[0].real, in[1].integer);
        };
      })
      .Case([](arith::CmpFOp op) -> Result {
        arith::CmpFPredicate predicate = op.getPredicate();
        return [predicate](const Number *in, Number *out) {
          out->integer = arith::applyCmpPredicate(
              predicate, APFloat(in[0].real), APFloat(in[1].real));
        };
      })
      .Default(ScalarFunction());
  // clang-format on
#undef UNARY
#undef BINARY
#undef TEST
}

/// Functions of integers.
static ScalarFunction getIntegerFunction(Operation *op) {
  using Result = ScalarFunction;
  Type type = op->getNumOperands() ? op->getOperand(0).getType() : Type();
  if (!type || !getElementTypeOrSelf(type).isIntOrIndex())
    return nullptr;
  unsigned width = getWidth(type);
#define SIGNED(OP, EXPRESSION)                                                 \
  .Case([=](OP) -> Result {                                                    \
    return makeInteger(width, [=](int64_t x, int64_t y) -> int64_t {           \
      x = getSigned(x, width), y = getSigned(y, width);                        \
      return EXPRESSION;                                                       \
    });                                                                        \
  })
#define UNSIGNED(OP, EXPRESSION)                                               \
  .Case([=](OP) -> Result {                                                    \
    return makeUnsigned(width, [=](uint64_t x, uint64_t y) -> uint64_t {       \
      return EXPRESSION;                                                       \
    });                                                                        \
  })
#define BITS(OP, EXPRESSION)                                                   \
  .Case([=](OP) -> Result {                                                    \
    return [=](const Number *in, Number *out) {                                \
      [[maybe_unused]] uint64_t x = getBits(in->integer, width);               \
      out->integer = wrap(int64_t(EXPRESSION), width);                         \
    };                                                                         \
  })
  return llvm::TypeSwitch<Operation *, ScalarFunction>(op)
      // clang-format off
      UNSIGNED(arith::AddIOp, x + y)
      UNSIGNED(arith::SubIOp, x - y)
      UNSIGNED(arith::MulIOp, x * y)
      UNSIGNED(arith::AndIOp, x & y)
      UNSIGNED(arith::OrIOp, x | y)
      UNSIGNED(arith::XOrIOp, x ^ y)
      UNSIGNED(arith::ShLIOp, y < width ? x << y : 0)
      UNSIGNED(arith::ShRUIOp, y < width ? x >> y : 0)
      SIGNED(arith::ShRSIOp, x >> (uint64_t(y) < width ? y : width - 1))
      SIGNED(arith::DivSIOp, divide(x, y, 0))
      SIGNED(arith::CeilDivSIOp, divide(x, y, 1))
      SIGNED(arith::FloorDivSIOp, divide(x, y, -1))
      SIGNED(arith::RemSIOp, y == 0 || y == -1 ? 0 : x % y)
      UNSIGNED(arith::DivUIOp, y ? x / y : 0)
      UNSIGNED(arith::CeilDivUIOp, y ? x / y + (x % y != 0) : 0)
      UNSIGNED(arith::RemUIOp, y ? x % y : 0)
      SIGNED(arith::MaxSIOp, std::max(x, y))
      SIGNED(arith::MinSIOp, std::min(x, y))
      UNSIGNED(arith::MaxUIOp, std::max(x, y))
      UNSIGNED(arith::MinUIOp, std::min(x, y))
      SIGNED(math::IPowIOp, powerOfIntegers(x, y))
      BITS(math::AbsIOp, std::abs(getSigned(in->integer, width)))
      BITS(math::CountLeadingZerosOp, llvm::countl_zero(x) - int(64 - width))
      BITS(math::CountTrailingZerosOp, std::min<int>(llvm::countr_zero(x), int(width)))
      BITS(math::CtPopOp, llvm::popcount(x))
      .Case([](arith::CmpIOp op) -> Result { return makeComparison(op); })
      .Case([=](arith::AddUIExtendedOp) -> Result {
        return [=](const Number *in, Number *out) {
          uint64_t x = getBits(in[0].integer, width), sum;
          bool isOver =
              __builtin_add_overflow(x, getBits(in[1].integer, width), &sum);
          out[0].integer = wrap(int64_t(sum), width);
          out[1].integer = isOver || getBits(int64_t(sum), width) != sum;
        };
      })
      .Case([=](arith::MulUIExtendedOp) -> Result {
        return [=](const Number *in, Number *out) {
          auto product = (unsigned __int128)getBits(in[0].integer, width) *
                         getBits(in[1].integer, width);
          out[0].integer = wrap(int64_t(product), width);
          out[1].integer = wrap(int64_t(product >> width), width);
        };
      })
      .Case([=](arith::MulSIExtendedOp) -> Result {
        return [=](const Number *in, Number *out) {
          auto product = (__int128)getSigned(in[0].integer, width) *
                         getSigned(in[1].integer, width);
          out[0].integer = wrap(int64_t(product), width);
          out[1].integer = wrap(int64_t(product >> width), width);
        };
      })
      .Default(ScalarFunction());
  // clang-format on
#undef SIGNED
#undef UNSIGNED
#undef BITS
}

/// Functions from one kind of number to another.
static ScalarFunction getConversion(Operation *op) {
  using Result = ScalarFunction;
  if (op->getNumOperands() == 0 || op->getNumResults() != 1)
    return nullptr;
  Type from = getElementTypeOrSelf(op->getOperand(0).getType());
  Type to = getElementTypeOrSelf(op->getResult(0).getType());
  if (!from.isIntOrIndexOrFloat() || !to.isIntOrIndexOrFloat())
    return nullptr;
  unsigned before = getWidth(from), after = getWidth(to);
  auto extendSigned = [=](const Number *in, Number *out) {
    out->integer = wrap(getSigned(in->integer, before), after);
  };
  auto extendUnsigned = [=](const Number *in, Number *out) {
    out->integer = wrap(int64_t(getBits(in->integer, before)), after);
  };
  return llvm::TypeSwitch<Operation *, ScalarFunction>(op)
      .Case<arith::ExtSIOp, arith::IndexCastOp, arith::TruncIOp>(
          [=](auto) -> Result { return extendSigned; })
      .Case<arith::ExtUIOp, arith::IndexCastUIOp>(
          [=](auto) -> Result { return extendUnsigned; })
      .Case([=](arith::SIToFPOp) -> Result {
        return [=](const Number *in, Number *out) {
          out->real = double(getSigned(in->integer, before));
        };
      })
      .Case([=](arith::UIToFPOp) -> Result {
        return [=](const Number *in, Number *out) {
          out->real = double(getBits(in->integer, before));
        };
      })
      .Case([=](arith::FPToSIOp) -> Result {
        return makeFromReal(after, /*isSigned=*/true);
      })
      .Case([=](arith::FPToUIOp) -> Result {
        return makeFromReal(after, /*isSigned=*/false);
      })
      .Case([](arith::BitcastOp op) -> Result { return makeBitcast(op); })
      .Default(ScalarFunction());
}

/// The value of `expr` for dimensions and symbols `in`, where `numDims` are
/// dimensions.
static int64_t evaluate(AffineExpr expr, const Number *in, unsigned numDims) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return in[dim.getPosition()].integer;
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return in[numDims + symbol.getPosition()].integer;
  auto binary = cast<AffineBinaryOpExpr>(expr);
  int64_t a = evaluate(binary.getLHS(), in, numDims);
  int64_t b = evaluate(binary.getRHS(), in, numDims);
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return a + b;
  case AffineExprKind::Mul:
    return a * b;
  case AffineExprKind::Mod:
    return a - b * divide(a, b, -1);
  case AffineExprKind::FloorDiv:
    return divide(a, b, -1);
  default:
    return divide(a, b, 1);
  }
}

ScalarFunction interpreter::getScalarFunction(Operation *op) {
  if (isa<arith::SelectOp>(op))
    return [](const Number *in, Number *out) {
      *out = in[0].integer ? in[1] : in[2];
    };
  if (isa<BarrierOp, GradientOp>(op))
    return [](const Number *in, Number *out) { *out = *in; };
  if (auto apply = dyn_cast<affine::AffineApplyOp>(op)) {
    AffineMap map = apply.getAffineMap();
    return [map](const Number *in, Number *out) {
      out->integer = evaluate(map.getResult(0), in, map.getNumDims());
    };
  }
  if (ScalarFunction function = getRealFunction(op))
    return function;
  if (ScalarFunction function = getConversion(op))
    return function;
  return getIntegerFunction(op);
}

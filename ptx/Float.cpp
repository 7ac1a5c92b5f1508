// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Floating-point arithmetic that is rounded once. PTX ISA, "Floating Point
// Instructions", "Half Precision Floating Point Instructions".

#include "Lanes.h"

using namespace ptx;

namespace {
/// Bits of Insn::aux; the lower three are a Round.
enum : uint32_t { Ftz = 8, Sat = 16, Relu = 32, PropagateNaN = 64 };
} // namespace

static Round modeOf(const Insn &insn) { return Round(insn.aux & 7); }

// Operations on exact values: the result is exact, or rounded to odd.
static double addMode(double a, double b, Round mode) {
  double sum = addOdd(a, b);
  if (sum == 0 && mode == Round::Down &&
      !(a == 0 && b == 0 && !std::signbit(a) && !std::signbit(b)))
    return -0.0;
  return sum;
}

namespace {
struct AddF {
  static double run(double a, double b, double, Round mode) {
    return addMode(a, b, mode);
  }
};

struct SubF {
  static double run(double a, double b, double, Round mode) {
    return addMode(a, -b, mode);
  }
};

struct MulF {
  static double run(double a, double b, double, Round) { return a * b; }
};

struct FmaF {
  static double run(double a, double b, double c, Round mode) {
    return addMode(a * b, c, mode);
  }
};

struct DivF {
  static double run(double a, double b, double, Round) {
    double quotient = a / b;
    if (!std::isfinite(quotient) || b == 0 || std::isinf(b))
      return quotient;
    double rest = std::fma(-quotient, b, a);
    return toOdd(quotient, b < 0 ? -rest : rest);
  }
};

struct SqrtF {
  static double run(double a, double, double, Round) {
    double root = std::sqrt(a);
    return std::isfinite(root) ? toOdd(root, std::fma(-root, root, a)) : root;
  }
};

struct RcpF {
  static double run(double a, double, double, Round mode) {
    return DivF::run(1, a, 0, mode);
  }
};
} // namespace

static bool less(double a, double b) {
  return a < b || (a == b && std::signbit(a) && !std::signbit(b));
}

namespace {
template <bool maximum>
struct Extreme {
  static double run(double a, double b, double, Round) {
    if (std::isnan(a))
      return b;
    if (std::isnan(b))
      return a;
    return less(a, b) == maximum ? b : a;
  }
};
} // namespace

static double exactOf(float value) { return value; }

static double exactOf(Half value) { return toFloat(value); }

static double exactOf(BFloat value) { return toFloat(value); }

static float roundedTo(double value, Round mode, float) {
  return toSingle(value, mode);
}

static Half roundedTo(double value, Round mode, Half) {
  return toHalf(value, mode);
}

static BFloat roundedTo(double value, Round mode, BFloat) {
  return toBFloat(value, mode);
}

static constexpr double smallestNormal(float) { return 0x1p-126; }

static constexpr double smallestNormal(BFloat) { return 0x1p-126; }

static constexpr double smallestNormal(Half) { return 0x1p-14; }

template <typename T, typename F>
static T compute(T a, T b, T c, const Insn &insn) {
  uint32_t aux = insn.aux;
  auto input = [&](T value) {
    double exact = exactOf(value);
    if ((aux & Ftz) && std::fabs(exact) < smallestNormal(T()))
      return std::copysign(0.0, exact);
    return exact;
  };
  double x = input(a), y = input(b), z = input(c);
  bool anyNaN = std::isnan(x) || std::isnan(y);
  double result =
      (aux & PropagateNaN) && anyNaN ? NAN : F::run(x, y, z, modeOf(insn));
  if (aux & Sat)
    result = result > 0 ? (result < 1 ? result : 1) : 0;
  if ((aux & Relu) && !(result > 0) && !std::isnan(result))
    result = 0;
  T rounded = std::isnan(result) ? roundedTo(NAN, Round::Nearest, T())
                                 : roundedTo(result, modeOf(insn), T());
  if (aux & Ftz) {
    double exact = exactOf(rounded);
    if (std::fabs(exact) < smallestNormal(T()))
      rounded = roundedTo(std::copysign(0.0, exact), Round::Nearest, T());
  }
  return rounded;
}

/// Sources beyond what the operation has are its first again.
template <typename T, typename F, unsigned sources, unsigned parts>
static void scalar(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  const uint32_t *a = warp.lanes<uint32_t>(insn.op[1]);
  const uint32_t *b = warp.lanes<uint32_t>(insn.op[sources > 1 ? 2 : 1]);
  const uint32_t *c = warp.lanes<uint32_t>(insn.op[sources > 2 ? 3 : 1]);
  forLanes(mask, [&](unsigned i) {
    uint32_t result = 0;
    for (unsigned part = 0; part < parts; ++part) {
      unsigned shift = 16 * part;
      T value = compute<T, F>(ptx::valueOf<T>(a[i] >> shift),
                              ptx::valueOf<T>(b[i] >> shift),
                              ptx::valueOf<T>(c[i] >> shift), insn);
      result |= storageOf<T>(value) << shift;
    }
    d[i] = result;
  });
}

// The common case of f32: round to nearest, nothing flushed or saturated.
static float canonical(float value) {
  return value == value ? value : floatOf(canonicalNaN);
}

namespace {
struct FastAdd {
  float operator()(float a, float b) const { return canonical(a + b); }
};

struct FastSub {
  float operator()(float a, float b) const { return canonical(a - b); }
};

struct FastMul {
  float operator()(float a, float b) const { return canonical(a * b); }
};

struct FastFma {
  float operator()(float a, float b, float c) const {
    return canonical(std::fma(a, b, c));
  }
};

// f64 is the processor's own, rounded to nearest.
struct Add64 {
  double operator()(double a, double b) const { return a + b; }
};

struct Sub64 {
  double operator()(double a, double b) const { return a - b; }
};

struct Mul64 {
  double operator()(double a, double b) const { return a * b; }
};

struct Fma64 {
  double operator()(double a, double b, double c) const {
    return std::fma(a, b, c);
  }
};

struct Div64 {
  double operator()(double a, double b) const { return a / b; }
};

struct Rcp64 {
  double operator()(double a) const { return 1 / a; }
};

struct Sqrt64 {
  double operator()(double a) const { return std::sqrt(a); }
};

struct Min64 {
  double operator()(double a, double b) const {
    return Extreme<false>::run(a, b, 0, Round::Nearest);
  }
};

struct Max64 {
  double operator()(double a, double b) const {
    return Extreme<true>::run(a, b, 0, Round::Nearest);
  }
};
} // namespace

#ifdef __x86_64__
/// Where the processor has the instruction, which std::fma() calls otherwise.
__attribute__((target("avx2,fma"))) static void
fuse(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t *d = warp.lanes<float>(insn.op[0]);
  const uint32_t *a = warp.lanes<float>(insn.op[1]);
  const uint32_t *b = warp.lanes<float>(insn.op[2]);
  const uint32_t *c = warp.lanes<float>(insn.op[3]);
  setLanes(d, mask, [=](unsigned i) {
    return bitsOf(FastFma()(floatOf(a[i]), floatOf(b[i]), floatOf(c[i])));
  });
}
#endif

static Handler *chooseFma() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return fuse;
#endif
  return ternary<float, FastFma>;
}

template <typename F, unsigned sources>
static Handler *handlerOf(const Decoder &d, Type type) {
  switch (type) {
  case Type::F32:
    return scalar<float, F, sources, 1>;
  case Type::F16:
    return scalar<Half, F, sources, 1>;
  case Type::BF16:
    return scalar<BFloat, F, sources, 1>;
  case Type::F16x2:
    return scalar<Half, F, sources, 2>;
  case Type::BF16x2:
    return scalar<BFloat, F, sources, 2>;
  default:
    failType(d);
  }
}

static bool isHalf(Type type) {
  return type == Type::F16 || type == Type::F16x2 || type == Type::BF16 ||
         type == Type::BF16x2;
}
static bool isBFloat(Type type) {
  return type == Type::BF16 || type == Type::BF16x2;
}

static bool decodeDouble(Decoder &d, unsigned sources, int mode) {
  // Of f64 only what is rounded to nearest, or not at all.
  if (mode > 0 || d.insn.aux)
    d.fail("expected modifier '.rn' of f64, but got '", d.statement.opcode,
           "'");
  operands(d, Type::F64, sources);
  std::string_view name = d.name;
  d.insn.handler = name == "add"    ? binary<double, Add64>
                   : name == "sub"  ? binary<double, Sub64>
                   : name == "mul"  ? binary<double, Mul64>
                   : name == "div"  ? binary<double, Div64>
                   : name == "min"  ? binary<double, Min64>
                   : name == "max"  ? binary<double, Max64>
                   : name == "rcp"  ? unary<double, Rcp64>
                   : name == "sqrt" ? unary<double, Sqrt64>
                                    : ternary<double, Fma64>;
  return true;
}

bool ptx::decodeFloat(Decoder &d) {
  std::string_view name = d.name, opcode = d.statement.opcode;
  static constexpr std::string_view known[] = {
      "add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt", "min", "max"};
  bool mine = false;
  for (std::string_view other : known)
    mine |= name == other;
  if (!mine || opcode.find(".approx") != std::string_view::npos ||
      opcode.find(".full") != std::string_view::npos)
    return false;
  d.insn.kind = Class::Float;
  bool extreme = name == "min" || name == "max";
  unsigned sources = name == "fma" || name == "mad"    ? 3
                     : name == "rcp" || name == "sqrt" ? 1
                                                       : 2;
  int mode = extreme ? -1 : d.choose({"rn", "rz", "rm", "rp"});
  if (mode < 0 && (name == "fma" || name == "div" || name == "rcp" ||
                   name == "sqrt" || name == "mad"))
    d.fail("expected a rounding modifier, but got '", opcode, "'");
  d.insn.aux = mode < 0 ? 0 : uint32_t(mode);
  if (d.take("ftz"))
    d.insn.aux |= Ftz;
  if (!extreme && d.take("sat"))
    d.insn.aux |= Sat;
  if (name == "fma" && d.take("relu"))
    d.insn.aux |= Relu;
  if (extreme && d.take("NaN"))
    d.insn.aux |= PropagateNaN;
  Type type = d.type();
  if (type == Type::F64)
    return decodeDouble(d, sources, mode);
  if (isHalf(type)) {
    bool arithmetic = name == "add" || name == "sub" || name == "mul" ||
                      name == "fma" || extreme;
    if (!arithmetic || mode > 0 ||
        (isBFloat(type) && (d.insn.aux & (Ftz | Sat))))
      failType(d);
    // add, sub and mul of bf16 came later than fma, min and max.
    if (isBFloat(type))
      d.require(name == "fma" || extreme ? 80 : 90);
  } else if (type != Type::F32 || (d.insn.aux & Relu)) {
    failType(d);
  }
  operands(d, type, sources);
  Handler *&handler = d.insn.handler;
  bool fast = type == Type::F32 && !d.insn.aux;
  if (name == "add")
    handler = fast ? binary<float, FastAdd> : handlerOf<AddF, 2>(d, type);
  else if (name == "sub")
    handler = fast ? binary<float, FastSub> : handlerOf<SubF, 2>(d, type);
  else if (name == "mul")
    handler = fast ? binary<float, FastMul> : handlerOf<MulF, 2>(d, type);
  else if (name == "fma" || name == "mad")
    handler = fast ? chooseFma() : handlerOf<FmaF, 3>(d, type);
  else if (name == "div")
    handler = handlerOf<DivF, 2>(d, type);
  else if (name == "rcp")
    handler = handlerOf<RcpF, 1>(d, type);
  else if (name == "sqrt")
    handler = handlerOf<SqrtF, 1>(d, type);
  else if (name == "min")
    handler = handlerOf<Extreme<false>, 2>(d, type);
  else
    handler = handlerOf<Extreme<true>, 2>(d, type);
  return true;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions that a chip approximates. Here they are computed in f64 and rounded
// to nearest: closer than any chip, and not the same bits
// (docs/ptx-interpreter.md has the errors that the manual allows).

#include "Lanes.h"

using namespace ptx;

namespace {
struct Ex2 {
  static double run(double a, double) { return std::exp2(a); }
};

struct Lg2 {
  static double run(double a, double) { return a < 0 ? NAN : std::log2(a); }
};

struct Sin {
  static double run(double a, double) { return std::sin(a); }
};

struct Cos {
  static double run(double a, double) { return std::cos(a); }
};

struct Tanh {
  static double run(double a, double) { return std::tanh(a); }
};

struct Rcp {
  static double run(double a, double) { return 1 / a; }
};

struct Sqrt {
  static double run(double a, double) { return std::sqrt(a); }
};

struct Rsqrt {
  static double run(double a, double) { return 1 / std::sqrt(a); }
};

struct Div {
  // Of divisors beyond 2^126 the manual says 0, or NaN for an infinite
  // dividend.
  static double run(double a, double b) {
    if (std::fabs(b) > 0x1p126 && std::isfinite(b))
      return std::isinf(a) ? NAN
                           : std::copysign(0.0, a) * std::copysign(1.0, b);
    return a / b;
  }
};

struct DivFull {
  static double run(double a, double b) { return a / b; }
};
} // namespace

template <typename F, unsigned sources>
static void single(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  const uint32_t *a = warp.lanes<uint32_t>(insn.op[1]),
                 *b = warp.lanes<uint32_t>(insn.op[sources]);
  bool ftz = insn.aux;
  forLanes(mask, [&](unsigned i) {
    float x = floatOf(a[i]), y = floatOf(b[i]);
    if (ftz)
      x = flush(x), y = flush(y);
    float result = float(F::run(x, y));
    if (ftz)
      result = flush(result);
    d[i] = std::isnan(result) ? canonicalNaN : bitsOf(result);
  });
}

template <typename T, typename F, unsigned parts>
static void halves(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  const uint32_t *a = warp.lanes<uint32_t>(insn.op[1]);
  forLanes(mask, [&](unsigned i) {
    uint32_t result = 0;
    for (unsigned part = 0; part < parts; ++part) {
      double value = F::run(toFloat(T{uint16_t(a[i] >> (16 * part))}), 0);
      uint16_t bits;
      if constexpr (std::is_same_v<T, Half>)
        bits = toHalf(value).bits;
      else
        bits = toBFloat(value, Round::Nearest).bits;
      result |= uint32_t(bits) << (16 * part);
    }
    d[i] = result;
  });
}

template <typename F>
static Handler *halfHandler(Decoder &d, Type type) {
  d.require(type == Type::F16 || type == Type::F16x2 ? 75 : 90);
  switch (type) {
  case Type::F16:
    return halves<Half, F, 1>;
  case Type::F16x2:
    return halves<Half, F, 2>;
  case Type::BF16:
    return halves<BFloat, F, 1>;
  case Type::BF16x2:
    return halves<BFloat, F, 2>;
  default:
    failType(d);
  }
}

bool ptx::decodeApproximate(Decoder &d) {
  std::string_view name = d.name;
  Handler *handler = nullptr;
  bool full = d.take("full");
  if (name == "ex2")
    handler = single<Ex2, 1>;
  else if (name == "lg2")
    handler = single<Lg2, 1>;
  else if (name == "sin")
    handler = single<Sin, 1>;
  else if (name == "cos")
    handler = single<Cos, 1>;
  else if (name == "tanh")
    handler = single<Tanh, 1>;
  else if (name == "rcp")
    handler = single<Rcp, 1>;
  else if (name == "sqrt")
    handler = single<Sqrt, 1>;
  else if (name == "rsqrt")
    handler = single<Rsqrt, 1>;
  else if (name == "div")
    handler = full ? single<DivFull, 2> : single<Div, 2>;
  else
    return false;
  d.insn.kind = Class::Float;
  if (!full)
    d.expect("approx");
  d.insn.aux = d.take("ftz");
  Type type = d.type();
  if (type != Type::F32 && name == "ex2")
    handler = halfHandler<Ex2>(d, type);
  else if (type != Type::F32 && name == "tanh")
    handler = halfHandler<Tanh>(d, type);
  else if (type != Type::F32)
    failType(d);
  operands(d, type, name == "div" ? 2 : 1);
  d.insn.handler = handler;
  return true;
}

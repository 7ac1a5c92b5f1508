// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions, each rounded once. PTX ISA, "cvt".

#include "Lanes.h"
#include <limits>

using namespace ptx;

namespace {
/// Bits of Insn::aux; the lower three are a Round.
enum : uint32_t {
  ToInteger = 8,
  Sat = 16,
  Ftz = 32,
  Relu = 64,
  HasRound = 128
};

/// A source: an integer, or a number that f64 has exactly.
struct Value {
  bool isFloat;
  bool negative; ///< of an integer
  uint64_t magnitude;
  double number;
};
} // namespace

static Value read(Type type, uint64_t bits) {
  auto whole = [](int64_t value) {
    return Value{false, value < 0,
                 value < 0 ? 0 - uint64_t(value) : uint64_t(value), 0};
  };
  switch (type) {
  case Type::S8:
    return whole(int8_t(bits));
  case Type::S16:
    return whole(int16_t(bits));
  case Type::S32:
    return whole(int32_t(bits));
  case Type::S64:
    return whole(int64_t(bits));
  case Type::U8:
    return {false, false, bits & 0xff, 0};
  case Type::U16:
    return {false, false, bits & 0xffff, 0};
  case Type::U32:
    return {false, false, bits & 0xffffffff, 0};
  case Type::F16:
    return {true, false, 0, toFloat(Half{uint16_t(bits)})};
  case Type::BF16:
    return {true, false, 0, toFloat(BFloat{uint16_t(bits)})};
  case Type::F32:
    return {true, false, 0, floatOf(uint32_t(bits))};
  case Type::F64:
    return {true, false, 0, doubleOf(bits)};
  default:
    return {false, false, bits, 0};
  }
}

static double roundWhole(double value, Round mode) {
  switch (mode) {
  case Round::Zero:
    return std::trunc(value);
  case Round::Down:
    return std::floor(value);
  case Round::Up:
    return std::ceil(value);
  default: {
    double down = std::floor(value), rest = value - down;
    bool odd = std::fmod(down, 2) != 0;
    double result = rest > 0.5 || (rest == 0.5 && odd) ? down + 1 : down;
    return std::copysign(result, value);
  }
  }
}

/// A number to the bits of an integer type. Out of range is the nearest bound.
static uint64_t toWhole(double value, Type type, Type from) {
  unsigned width = 8 * sizeOf(type);
  if (std::isnan(
          value)) // "cvt": zero, or the highest bit alone for f64 and 64 bits
    return from == Type::F64 || width == 64 ? uint64_t(1) << (width - 1) : 0;
  double bound = std::ldexp(1.0, int(width) - isSigned(type));
  if (isSigned(type)) {
    uint64_t most = (uint64_t(1) << (width - 1)) - 1;
    return value >= bound   ? most
           : value < -bound ? ~most
                            : uint64_t(int64_t(value));
  }
  return value >= bound ? ~uint64_t(0) >> (64 - width)
         : value <= 0   ? 0
                        : uint64_t(value);
}

/// An integer of up to 64 bits as f64, rounded to odd.
static double toOddNumber(const Value &value) {
  uint64_t magnitude = value.magnitude;
  int dropped = 0;
  while (magnitude >> 53) {
    magnitude = magnitude >> 1 | (magnitude & 1);
    ++dropped;
  }
  double number = std::ldexp(double(magnitude), dropped);
  return value.negative ? -number : number;
}

static uint64_t saturate(const Value &value, Type type) {
  unsigned width = 8 * sizeOf(type);
  if (isSigned(type)) {
    uint64_t most = (uint64_t(1) << (width - 1)) - 1;
    if (value.negative)
      return 0 - std::min(value.magnitude, most + 1);
    return std::min(value.magnitude, most);
  }
  return value.negative
             ? 0
             : std::min(value.magnitude, ~uint64_t(0) >> (64 - width));
}

static uint64_t convert(const Insn &insn, Type to, Type from, uint64_t bits) {
  Value value = read(from, bits);
  Round mode = Round(insn.aux & 7);
  if (value.isFloat && (insn.aux & Ftz) && std::fabs(value.number) < 0x1p-126)
    value.number = std::copysign(0.0, value.number);
  if (isInteger(to)) {
    if (value.isFloat)
      return toWhole(roundWhole(value.number, mode), to, from);
    return insn.aux & Sat   ? saturate(value, to)
           : value.negative ? 0 - value.magnitude
                            : value.magnitude;
  }
  double number = value.isFloat ? value.number : toOddNumber(value);
  if (value.isFloat && (insn.aux & ToInteger) && std::isfinite(number))
    number = roundWhole(number, mode), mode = Round::Nearest;
  if (insn.aux & Sat)
    number = number > 0 ? (number < 1 ? number : 1) : 0;
  if ((insn.aux & Relu) && !(number > 0) && !std::isnan(number))
    number = 0;
  switch (to) {
  case Type::F16:
    return toHalf(number, mode).bits;
  case Type::BF16:
    return toBFloat(number, mode).bits;
  case Type::TF32:
    return uint64_t(roundTo(tf32Format, number, mode)) << 13;
  case Type::F32: {
    float result =
        std::isnan(number) ? floatOf(canonicalNaN) : toSingle(number, mode);
    return bitsOf(insn.aux & Ftz ? flush(result) : result);
  }
  default: {
    if (value.isFloat)
      return bitsOf(number);
    // From an integer of more than 53 bits.
    double exact =
        value.negative ? -double(value.magnitude) : double(value.magnitude);
    if (mode != Round::Nearest && toOddNumber(value) != exact)
      exact = toOddNumber(value);
    return bitsOf(exact);
  }
  }
}

template <bool wideTo, bool wideFrom>
static void general(Warp &warp, const Insn &insn, uint32_t mask) {
  using To = std::conditional_t<wideTo, uint64_t, uint32_t>;
  using From = std::conditional_t<wideFrom, uint64_t, uint32_t>;
  auto *d = warp.lanes<To>(insn.op[0]);
  const auto *a = warp.lanes<From>(insn.op[1]);
  Type to = Type(insn.imm), from = Type(insn.imm2);
  forLanes(mask, [&](unsigned i) { d[i] = To(convert(insn, to, from, a[i])); });
}

/// Between integers, without saturation.
template <typename To, typename From>
static void whole(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<To>(insn.op[0]);
  const auto *a = warp.lanes<From>(insn.op[1]);
  // An s8 fills a register of 16 bits, so that the lanes of all have 32.
  using Storage = std::conditional_t<sizeof(To) == 8, uint64_t, uint32_t>;
  forLanes(mask, [&](unsigned i) { d[i] = Storage(To(From(a[i]))); });
}

/// Two f32 to a pair of 16 bits; the first source is the upper half.
template <bool half>
static void pack(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  const uint32_t *a = warp.lanes<uint32_t>(insn.op[1]),
                 *b = warp.lanes<uint32_t>(insn.op[2]);
  Round mode = Round(insn.aux & 7);
  auto narrow = [&](uint32_t bits) -> uint32_t {
    float value = floatOf(bits);
    if ((insn.aux & Relu) && !(value > 0) && value == value)
      value = 0;
    if (half)
      return toHalf(value, mode).bits;
    return mode == Round::Nearest ? toBFloat(value).bits
                                  : toBFloat(double(value), mode).bits;
  };
  forLanes(mask, [&](unsigned i) { d[i] = narrow(a[i]) << 16 | narrow(b[i]); });
}

template <typename To>
static Handler *wholeFrom(Type from) {
  switch (from) {
  case Type::S8:
    return whole<To, int8_t>;
  case Type::S16:
    return whole<To, int16_t>;
  case Type::S32:
    return whole<To, int32_t>;
  case Type::S64:
    return whole<To, int64_t>;
  case Type::U8:
    return whole<To, uint8_t>;
  case Type::U16:
    return whole<To, uint16_t>;
  case Type::U32:
    return whole<To, uint32_t>;
  default:
    return whole<To, uint64_t>;
  }
}

static Handler *wholeHandler(Type to, Type from) {
  switch (to) {
  case Type::S8:
    return wholeFrom<int8_t>(from);
  case Type::S16:
    return wholeFrom<int16_t>(from);
  case Type::S32:
    return wholeFrom<int32_t>(from);
  case Type::S64:
    return wholeFrom<int64_t>(from);
  case Type::U8:
    return wholeFrom<uint8_t>(from);
  case Type::U16:
    return wholeFrom<uint16_t>(from);
  case Type::U32:
    return wholeFrom<uint32_t>(from);
  default:
    return wholeFrom<uint64_t>(from);
  }
}

bool ptx::decodeConvert(Decoder &d) {
  if (d.name != "cvt")
    return false;
  d.insn.kind = Class::Convert;
  int mode = d.choose({"rn", "rz", "rm", "rp", "rna"});
  int whole = d.choose({"rni", "rzi", "rmi", "rpi"});
  uint32_t &aux = d.insn.aux;
  aux = mode >= 0    ? uint32_t(mode)
        : whole >= 0 ? uint32_t(whole) | ToInteger
                     : 0;
  if (d.take("ftz"))
    aux |= Ftz;
  if (d.take("sat"))
    aux |= Sat;
  if (d.take("relu"))
    aux |= Relu;
  Type to = d.type(), from = d.type();
  if (to == Type::F16x2 || to == Type::BF16x2) {
    d.require(80);
    if (from != Type::F32 || (mode != 0 && mode != 1) || whole >= 0 ||
        (aux & (Ftz | Sat)))
      failType(d);
    d.expectOperands(3);
    d.insn.op[0] = d.define(size_t(0), Type::B32);
    d.insn.op[1] = d.use(1, Type::F32);
    d.insn.op[2] = d.use(2, Type::F32);
    d.insn.handler = to == Type::F16x2 ? pack<true> : pack<false>;
    return true;
  }
  auto isSource = [](Type type) {
    return isSigned(type) || isUnsigned(type) || type == Type::F16 ||
           type == Type::BF16 || type == Type::F32 || type == Type::F64;
  };
  if (!isSource(from) || !(isSource(to) || to == Type::TF32))
    failType(d);
  bool narrows = isFloat(to) && (isInteger(from) || sizeOf(to) < sizeOf(from) ||
                                 to == Type::TF32);
  bool rounds = mode >= 0 || whole >= 0;
  if ((narrows && mode < 0) || (isInteger(to) && isFloat(from) && whole < 0) ||
      (isInteger(to) && isInteger(from) && rounds))
    d.fail("expected the rounding modifier of this conversion, but got '",
           d.statement.opcode, "'");
  if ((mode == 4) !=
          (to == Type::TF32 && mode >= 0 && from == Type::F32 && mode == 4) ||
      ((aux & Relu) && to != Type::F16 && to != Type::BF16) ||
      (to == Type::TF32 && from != Type::F32))
    failType(d);
  if (to == Type::TF32)
    d.require(mode == 4 ? 80 : 90);
  else if (to == Type::BF16 || from == Type::BF16)
    d.require(to == Type::F32 || from == Type::F32 ? 80 : 90);
  d.expectOperands(2);
  // Both may lie in wider registers.
  const Operand &target = d.operand(0), &source = d.operand(1);
  d.insn.op[0] = d.define(target, to, true);
  d.insn.op[1] = d.use(source, from, true);
  bool wideTo = d.bytesOf(target) == 8;
  bool wideFrom = source.kind == Operand::Number ? sizeOf(from) == 8
                                                 : d.bytesOf(source) == 8;
  d.insn.imm = int64_t(to);
  d.insn.imm2 = int64_t(from);
  bool exact = wideTo == (sizeOf(to) == 8) && wideFrom == (sizeOf(from) == 8);
  if (isInteger(to) && isInteger(from) && !aux && exact)
    d.insn.handler = wholeHandler(to, from);
  else
    d.insn.handler =
        wideTo ? (wideFrom ? general<true, true> : general<true, false>)
               : (wideFrom ? general<false, true> : general<false, false>);
  return true;
}

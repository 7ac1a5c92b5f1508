// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Logic and shifts. PTX ISA, "Logic and Shift Instructions".

#include "Lanes.h"
#include <algorithm>

using namespace ptx;

namespace {
struct And {
  template <typename T>
  T operator()(T a, T b) const {
    return T(a & b);
  }
};

struct Or {
  template <typename T>
  T operator()(T a, T b) const {
    return T(a | b);
  }
};

struct Xor {
  template <typename T>
  T operator()(T a, T b) const {
    return T(a ^ b);
  }
};

struct Not {
  template <typename T>
  T operator()(T a) const {
    return T(~a);
  }
};

struct Cnot {
  template <typename T>
  T operator()(T a) const {
    return a == 0;
  }
};
} // namespace

/// Shifts by a register of 32 bits; a shift by the width or more leaves the
/// sign or nothing.
template <typename T, bool left>
static void shift(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<T>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  const uint32_t *b = warp.lanes<uint32_t>(insn.op[2]);
  constexpr uint32_t width = 8 * sizeof(T);
  forLanes(mask, [&](unsigned i) {
    T value = T(a[i]);
    uint32_t by = b[i];
    if (left)
      value = by >= width ? 0 : T(uint64_t(value) << by);
    else
      value = by >= width ? (std::is_signed_v<T> && value < 0 ? T(-1) : T(0))
                          : T(value >> by);
    d[i] = storageOf<T>(value);
  });
}

template <bool left, bool wraps>
static void funnel(Warp &warp, const Insn &insn, uint32_t mask) {
  const uint32_t *a = warp.lanes<uint32_t>(insn.op[1]),
                 *b = warp.lanes<uint32_t>(insn.op[2]);
  const uint32_t *c = warp.lanes<uint32_t>(insn.op[3]);
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  forLanes(mask, [&](unsigned i) {
    uint32_t by = wraps ? c[i] & 31 : std::min(c[i], 32u);
    uint64_t both = uint64_t(b[i]) << 32 | a[i];
    d[i] = uint32_t(left ? both << by >> 32 : both >> by);
  });
}

/// Byte by byte of 8: 3 bits choose one, the fourth spreads its sign.
static void permute(Warp &warp, const Insn &insn, uint32_t mask) {
  const uint32_t *a = warp.lanes<uint32_t>(insn.op[1]),
                 *b = warp.lanes<uint32_t>(insn.op[2]);
  const uint32_t *c = warp.lanes<uint32_t>(insn.op[3]);
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  forLanes(mask, [&](unsigned i) {
    uint64_t both = uint64_t(b[i]) << 32 | a[i];
    uint32_t result = 0;
    for (unsigned byte = 0; byte < 4; ++byte) {
      uint32_t choice = c[i] >> (4 * byte) & 15;
      uint32_t value = uint32_t(both >> (8 * (choice & 7)) & 255);
      if (choice & 8)
        value = value & 128 ? 255 : 0;
      result |= value << (8 * byte);
    }
    d[i] = result;
  });
}

/// The special modes of prmt; the selector is 2 bits.
static void permuteMode(Warp &warp, const Insn &insn, uint32_t mask) {
  static constexpr uint16_t selectors[6][4] = {
      {0x3210, 0x4321, 0x5432, 0x6543}, // f4e
      {0x5670, 0x6701, 0x7012, 0x0123}, // b4e
      {0x0000, 0x1111, 0x2222, 0x3333}, // rc8
      {0x3210, 0x3211, 0x3222, 0x3333}, // ecl
      {0x0000, 0x1110, 0x2210, 0x3210}, // ecr
      {0x1010, 0x3232, 0x1010, 0x3232}, // rc16
  };
  const uint32_t *a = warp.lanes<uint32_t>(insn.op[1]),
                 *b = warp.lanes<uint32_t>(insn.op[2]);
  const uint32_t *c = warp.lanes<uint32_t>(insn.op[3]);
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  forLanes(mask, [&](unsigned i) {
    uint64_t both = uint64_t(b[i]) << 32 | a[i];
    uint32_t selector = selectors[insn.aux][c[i] & 3], result = 0;
    for (unsigned byte = 0; byte < 4; ++byte)
      result |= uint32_t(both >> (8 * (selector >> (4 * byte) & 15)) & 255)
                << (8 * byte);
    d[i] = result;
  });
}

/// Bit by bit: the table is the immediate.
static void lop3(Warp &warp, const Insn &insn, uint32_t mask) {
  const uint32_t *a = warp.lanes<uint32_t>(insn.op[1]),
                 *b = warp.lanes<uint32_t>(insn.op[2]);
  const uint32_t *c = warp.lanes<uint32_t>(insn.op[3]);
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  uint32_t table = uint32_t(insn.imm);
  forLanes(mask, [&](unsigned i) {
    uint32_t result = 0;
    for (unsigned row = 0; row < 8; ++row)
      if (table >> row & 1)
        result |= (row & 4 ? a[i] : ~a[i]) & (row & 2 ? b[i] : ~b[i]) &
                  (row & 1 ? c[i] : ~c[i]);
    d[i] = result;
  });
}

namespace {
enum Logic { LogicAnd, LogicOr, LogicXor, LogicNot };
} // namespace

static void predicateLogic(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t a = warp.predicate(insn, insn.op[1], mask);
  uint32_t b =
      insn.aux == LogicNot ? 0 : warp.predicate(insn, insn.op[2], mask);
  warp.setPredicate(insn.op[0], mask,
                    insn.aux == LogicAnd   ? a & b
                    : insn.aux == LogicOr  ? a | b
                    : insn.aux == LogicXor ? a ^ b
                                           : ~a);
}

static bool decodeLogic(Decoder &d, Logic logic) {
  Type type = d.type();
  unsigned sources = logic == LogicNot ? 1 : 2;
  if (type == Type::Pred) {
    d.expectOperands(sources + 1);
    d.insn.op[0] = d.predicateNamed(d.operand(0).name);
    d.insn.op[1] = d.predicate(d.operand(1));
    if (sources == 2)
      d.insn.op[2] = d.predicate(d.operand(2));
    d.insn.aux = logic;
    d.insn.handler = predicateLogic;
    return true;
  }
  if (!isBits(type))
    failType(d);
  operands(d, type, sources);
  d.insn.handler = logic == LogicAnd   ? binaryInteger<And>(d, type)
                   : logic == LogicOr  ? binaryInteger<Or>(d, type)
                   : logic == LogicXor ? binaryInteger<Xor>(d, type)
                                       : unaryInteger<Not>(d, type);
  return true;
}

static bool decodeShift(Decoder &d) {
  bool left = d.name == "shl";
  Type type = d.type();
  if (left && !isBits(type))
    failType(d);
  d.expectOperands(3);
  d.insn.op[0] = d.define(size_t(0), type);
  d.insn.op[1] = d.use(1, type);
  d.insn.op[2] = d.use(2, Type::U32);
  bool isSigned = ptx::isSigned(type);
  switch (sizeOf(type)) {
  case 2:
    d.insn.handler = left       ? shift<uint16_t, true>
                     : isSigned ? shift<int16_t, false>
                                : shift<uint16_t, false>;
    break;
  case 4:
    d.insn.handler = left       ? shift<uint32_t, true>
                     : isSigned ? shift<int32_t, false>
                                : shift<uint32_t, false>;
    break;
  case 8:
    d.insn.handler = left       ? shift<uint64_t, true>
                     : isSigned ? shift<int64_t, false>
                                : shift<uint64_t, false>;
    break;
  default:
    failType(d);
  }
  return true;
}

bool ptx::decodeBits(Decoder &d) {
  d.insn.kind = Class::Integer;
  if (d.name == "and")
    return decodeLogic(d, LogicAnd);
  if (d.name == "or")
    return decodeLogic(d, LogicOr);
  if (d.name == "xor")
    return decodeLogic(d, LogicXor);
  if (d.name == "not")
    return decodeLogic(d, LogicNot);
  if (d.name == "shl" || d.name == "shr")
    return decodeShift(d);
  if (d.name == "cnot") {
    Type type = d.type();
    if (!isBits(type))
      failType(d);
    operands(d, type, 1);
    d.insn.handler = unaryInteger<Cnot>(d, type);
    return true;
  }
  if (d.name == "shf") {
    bool left = d.choose({"r", "l"}) == 1;
    bool wraps = d.choose({"clamp", "wrap"}) == 1;
    d.expect("b32");
    operands(d, Type::B32, 3);
    d.insn.handler = left
                         ? (wraps ? funnel<true, true> : funnel<true, false>)
                         : (wraps ? funnel<false, true> : funnel<false, false>);
    return true;
  }
  if (d.name == "prmt") {
    d.expect("b32");
    int mode = d.choose({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
    operands(d, Type::B32, 3);
    d.insn.aux = mode < 0 ? 0 : uint32_t(mode);
    d.insn.handler = mode < 0 ? permute : permuteMode;
    return true;
  }
  if (d.name == "lop3") {
    d.expect("b32");
    d.expectOperands(5);
    d.insn.op[0] = d.define(size_t(0), Type::B32);
    for (unsigned i = 1; i <= 3; ++i)
      d.insn.op[i] = d.use(i, Type::B32);
    d.insn.imm = d.number(4);
    if (d.insn.imm < 0 || d.insn.imm > 255)
      d.fail("expected a table of 0 to 255, but got ", d.insn.imm);
    d.insn.handler = lop3;
    return true;
  }
  return false;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Integer arithmetic. PTX ISA, "Integer Arithmetic Instructions".

#include "Lanes.h"
#include <limits>

using namespace ptx;

namespace {
// Every result is that of the unsigned operation, cut to its type.
struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return T(uint64_t(a) + uint64_t(b));
  }
};

struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return T(uint64_t(a) - uint64_t(b));
  }
};

struct MulLow {
  template <typename T>
  T operator()(T a, T b) const {
    return T(uint64_t(a) * uint64_t(b));
  }
};

struct MulHigh {
  template <typename T>
  T operator()(T a, T b) const {
    using Wide =
        std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return T(Wide(a) * Wide(b) >> (8 * sizeof(T)));
  }
};

struct Mul24 {
  template <typename T>
  T operator()(T a, T b) const {
    using Signed = std::make_signed_t<T>;
    constexpr unsigned cut = 8 * sizeof(T) - 24;
    auto low = [&](T value) {
      T up = T(uint64_t(value) << cut);
      return std::is_signed_v<T> ? T(Signed(up) >> cut) : T(up >> cut);
    };
    return T(uint64_t(low(a)) * uint64_t(low(b)));
  }
};

struct MadLow {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return T(uint64_t(a) * uint64_t(b) + uint64_t(c));
  }
};

struct MadHigh {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add()(MulHigh()(a, b), c);
  }
};

struct Div {
  // The result of a division by zero is not specified; this is the hardware's.
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0)
      return T(-1);
    if (std::is_signed_v<T> && b == T(-1))
      return T(0 - uint64_t(a));
    return T(a / b);
  }
};

struct Rem {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0)
      return a;
    if (std::is_signed_v<T> && b == T(-1))
      return 0;
    return T(a % b);
  }
};

struct Neg {
  template <typename T>
  T operator()(T a) const {
    return T(0 - uint64_t(a));
  }
};

struct Abs {
  template <typename T>
  T operator()(T a) const {
    return a < 0 ? Neg()(a) : a;
  }
};

struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};

struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

/// `Operation`, or 0 where that is negative.
template <typename Operation>
struct Relu {
  int32_t operator()(int32_t a, int32_t b) const {
    return Max()(Operation()(a, b), 0);
  }
};

struct AddSat {
  int32_t operator()(int32_t a, int32_t b) const { return cut(int64_t(a) + b); }
  static int32_t cut(int64_t value) {
    return int32_t(value > INT32_MAX   ? INT32_MAX
                   : value < INT32_MIN ? INT32_MIN
                                       : value);
  }
};

struct SubSat {
  int32_t operator()(int32_t a, int32_t b) const {
    return AddSat::cut(int64_t(a) - b);
  }
};

struct Sad {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return T(uint64_t(c) +
             (a < b ? uint64_t(b) - uint64_t(a) : uint64_t(a) - uint64_t(b)));
  }
};
} // namespace

/// d = a * b (+ c), d of twice the width.
template <typename T, typename Wide, bool adds>
static void multiplyWide(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<Wide>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  const auto *b = warp.lanes<T>(insn.op[2]);
  const auto *c = adds ? warp.lanes<Wide>(insn.op[3]) : d;
  forLanes(mask, [&](unsigned i) {
    Wide product = Wide(Wide(valueOf<T>(a[i])) * Wide(valueOf<T>(b[i])));
    d[i] = storageOf<Wide>(
        adds ? Wide(uint64_t(product) + uint64_t(valueOf<Wide>(c[i])))
             : product);
  });
}

/// a + b + carry in, with or without a carry out. The carry is a predicate.
template <typename T, bool subtracts>
static void withCarry(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<T>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  const auto *b = warp.lanes<T>(insn.op[2]);
  uint32_t carry = insn.imm ? warp.predicate(insn, insn.op[3], mask) : 0,
           out = 0;
  forLanes(mask, [&](unsigned i) {
    unsigned __int128 wide =
        subtracts ? (unsigned __int128)(T(a[i])) - T(b[i]) - (carry >> i & 1)
                  : (unsigned __int128)(T(a[i])) + T(b[i]) + (carry >> i & 1);
    d[i] = T(wide);
    out |= uint32_t(wide >> (8 * sizeof(T)) & 1) << i;
  });
  if (insn.imm2)
    warp.setPredicate(insn.op[3], mask, out);
}

/// a * b + c + carry in, the lower or the upper half of the product. The list
/// is the carry; `aux` has the bits of Carries.
enum Carries : uint32_t { CarryIn = 1, CarryOut = 2, UpperHalf = 4 };

template <typename T>
static void multiplyWithCarry(Warp &warp, const Insn &insn, uint32_t mask) {
  using Unsigned = std::make_unsigned_t<T>;
  auto *d = warp.lanes<T>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  const auto *b = warp.lanes<T>(insn.op[2]);
  const auto *c = warp.lanes<T>(insn.op[3]);
  uint32_t slot = warp.list(insn)[0], out = 0;
  uint32_t carry = insn.aux & CarryIn ? warp.predicate(insn, slot, mask) : 0;
  forLanes(mask, [&](unsigned i) {
    T x = valueOf<T>(a[i]), y = valueOf<T>(b[i]);
    auto product =
        Unsigned(insn.aux & UpperHalf ? MulHigh()(x, y) : MulLow()(x, y));
    auto sum = (unsigned __int128)(product) + Unsigned(c[i]) + (carry >> i & 1);
    d[i] = storageOf<T>(T(sum));
    out |= uint32_t(sum >> (8 * sizeof(T)) & 1) << i;
  });
  if (insn.aux & CarryOut)
    warp.setPredicate(slot, mask, out);
}

static bool isWhole(Type type) { return isUnsigned(type) || isSigned(type); }

static bool decodeMultiply(Decoder &d) {
  bool adds = d.name == "mad";
  int part = d.choose({"lo", "hi", "wide"});
  Type type = d.type();
  if (part < 0 || !isWhole(type))
    failType(d);
  if (part == 2) {
    d.expectOperands(adds ? 4 : 3);
    static constexpr Type wider[] = {Type::U32, Type::U64};
    unsigned size = sizeOf(type);
    if (size != 2 && size != 4)
      failType(d);
    Type wide = wider[size / 2 - 1];
    d.insn.op[0] = d.define(size_t(0), wide);
    d.insn.op[1] = d.use(1, type);
    d.insn.op[2] = d.use(2, type);
    if (adds)
      d.insn.op[3] = d.use(3, wide);
    switch (type) {
    case Type::U16:
      d.insn.handler = adds ? multiplyWide<uint16_t, uint32_t, true>
                            : multiplyWide<uint16_t, uint32_t, false>;
      break;
    case Type::S16:
      d.insn.handler = adds ? multiplyWide<int16_t, int32_t, true>
                            : multiplyWide<int16_t, int32_t, false>;
      break;
    case Type::U32:
      d.insn.handler = adds ? multiplyWide<uint32_t, uint64_t, true>
                            : multiplyWide<uint32_t, uint64_t, false>;
      break;
    default:
      d.insn.handler = adds ? multiplyWide<int32_t, int64_t, true>
                            : multiplyWide<int32_t, int64_t, false>;
      break;
    }
    return true;
  }
  operands(d, type, adds ? 3 : 2);
  if (adds)
    d.insn.handler = part ? ternaryInteger<MadHigh>(d, type)
                          : ternaryInteger<MadLow>(d, type);
  else
    d.insn.handler =
        part ? binaryInteger<MulHigh>(d, type) : binaryInteger<MulLow>(d, type);
  return true;
}

static bool decodeProductCarry(Decoder &d) {
  d.insn.aux = (d.name == "madc" ? CarryIn : 0) | (d.take("cc") ? CarryOut : 0);
  int part = d.choose({"lo", "hi"});
  Type type = d.type();
  if (part < 0 || !isWhole(type) || sizeOf(type) < 4)
    failType(d);
  d.insn.aux |= part ? UpperHalf : 0;
  operands(d, type, 3);
  d.list(d.builder.carry());
  Handler *&handler = d.insn.handler;
  if (sizeOf(type) == 4)
    handler = isSigned(type) ? multiplyWithCarry<int32_t>
                             : multiplyWithCarry<uint32_t>;
  else
    handler = isSigned(type) ? multiplyWithCarry<int64_t>
                             : multiplyWithCarry<uint64_t>;
  return true;
}

static bool decodeCarry(Decoder &d) {
  bool subtracts = d.name == "subc" || d.name == "sub";
  bool in = d.name == "addc" || d.name == "subc";
  bool out = d.take("cc");
  Type type = d.type();
  operands(d, type, 2);
  d.insn.imm = in;
  d.insn.imm2 = out;
  d.insn.op[3] = d.builder.carry();
  if (sizeOf(type) == 4)
    d.insn.handler =
        subtracts ? withCarry<uint32_t, true> : withCarry<uint32_t, false>;
  else if (sizeOf(type) == 8)
    d.insn.handler =
        subtracts ? withCarry<uint64_t, true> : withCarry<uint64_t, false>;
  else
    failType(d);
  return true;
}

bool ptx::decodeInteger(Decoder &d) {
  std::string_view name = d.name, opcode = d.statement.opcode;
  static constexpr std::string_view known[] = {
      "add", "sub", "mul",   "mad", "div",  "rem",  "neg", "abs",
      "min", "max", "mul24", "sad", "addc", "subc", "madc"};
  bool mine = false;
  for (std::string_view other : known)
    mine |= name == other;
  // The type comes last.
  auto last = typeNamed(opcode.substr(opcode.rfind('.') + 1));
  if (!mine || !last || isFloat(*last))
    return false;
  d.insn.kind = Class::Integer;
  bool carries = opcode.find(".cc.") != std::string_view::npos;
  if (name == "madc" || (name == "mad" && carries))
    return decodeProductCarry(d);
  if (name == "mul" || name == "mad")
    return decodeMultiply(d);
  if (name == "addc" || name == "subc" || carries)
    return decodeCarry(d);
  bool saturates = (name == "add" || name == "sub") && d.take("sat");
  bool clamps = (name == "min" || name == "max") && d.take("relu");
  if (clamps)
    d.require(90);
  if (name == "mul24")
    d.expect("lo");
  Type type = d.type();
  bool negates = name == "neg" || name == "abs";
  if (!isWhole(type) || ((saturates || clamps) && type != Type::S32) ||
      (negates && !isSigned(type)) || (name == "mul24" && sizeOf(type) != 4))
    failType(d);
  operands(d, type, negates ? 1 : name == "sad" ? 3 : 2);
  Handler *&handler = d.insn.handler;
  if (saturates)
    handler = name == "add" ? binary<int32_t, AddSat> : binary<int32_t, SubSat>;
  else if (clamps)
    handler =
        name == "min" ? binary<int32_t, Relu<Min>> : binary<int32_t, Relu<Max>>;
  else if (name == "add")
    handler = binaryInteger<Add>(d, type);
  else if (name == "sub")
    handler = binaryInteger<Sub>(d, type);
  else if (name == "div")
    handler = binaryInteger<Div>(d, type);
  else if (name == "rem")
    handler = binaryInteger<Rem>(d, type);
  else if (name == "min")
    handler = binaryInteger<Min>(d, type);
  else if (name == "max")
    handler = binaryInteger<Max>(d, type);
  else if (name == "neg")
    handler = unaryInteger<Neg>(d, type);
  else if (name == "abs")
    handler = unaryInteger<Abs>(d, type);
  else if (name == "sad")
    handler = ternaryInteger<Sad>(d, type);
  else
    handler =
        type == Type::U32 ? binary<uint32_t, Mul24> : binary<int32_t, Mul24>;
  return true;
}

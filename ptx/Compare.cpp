// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Comparisons and selections. PTX ISA, "Comparison and Selection Instructions".

#include "Lanes.h"

using namespace ptx;

namespace {
enum Relation : uint8_t { Eq, Ne, Lt, Le, Gt, Ge, Num, Nan };

/// Bits of Insn::aux above the relation.
enum : uint32_t {
  Unordered = 16,
  Ftz = 32,
  Negated = 64,
  CombineAnd = 128,
  CombineOr = 256,
  CombineXor = 512
};

template <typename T, Relation relation>
struct Test {
  static bool run(T a, T b) {
    switch (relation) {
    case Eq:
      return a == b;
    case Ne:
      return a != b;
    case Lt:
      return a < b;
    case Le:
      return a <= b;
    case Gt:
      return a > b;
    default:
      return a >= b;
    }
  }
};
} // namespace

template <typename T, Relation relation>
static uint32_t compareWhole(Warp &warp, const Insn &insn, uint32_t mask) {
  const auto *a = warp.lanes<T>(insn.op[2]), *b = warp.lanes<T>(insn.op[3]);
  uint32_t result = 0;
  (void)mask;
  for (unsigned i = 0; i < 32; ++i)
    result |= uint32_t(Test<T, relation>::run(T(a[i]), T(b[i]))) << i;
  return result;
}

static double exactOf(float value, bool ftz) {
  return ftz ? flush(value) : value;
}

static double exactOf(double value, bool) { return value; }

static double exactOf(Half value, bool) { return toFloat(value); }

static double exactOf(BFloat value, bool) { return toFloat(value); }

template <typename T>
static uint32_t compareFloat(Warp &warp, const Insn &insn, uint32_t mask) {
  const auto *a = warp.lanes<T>(insn.op[2]), *b = warp.lanes<T>(insn.op[3]);
  uint32_t result = 0;
  Relation relation = Relation(insn.aux & 15);
  bool ftz = insn.aux & Ftz;
  forLanes(mask, [&](unsigned i) {
    double x = exactOf(ptx::valueOf<T>(a[i]), ftz),
           y = exactOf(ptx::valueOf<T>(b[i]), ftz);
    bool none = std::isnan(x) || std::isnan(y), value;
    switch (relation) {
    case Eq:
      value = x == y;
      break;
    case Ne:
      value = !none && x != y;
      break;
    case Lt:
      value = x < y;
      break;
    case Le:
      value = x <= y;
      break;
    case Gt:
      value = x > y;
      break;
    case Ge:
      value = x >= y;
      break;
    case Num:
      value = !none;
      break;
    default:
      value = none;
      break;
    }
    result |= uint32_t(value || (none && (insn.aux & Unordered))) << i;
  });
  return result;
}

namespace {
using Comparison = uint32_t(Warp &, const Insn &, uint32_t);
} // namespace

/// setp: a predicate and its complement, combined with a third. The predicates
/// are the list: p, q or p again, c.
template <Comparison compare>
static void setPredicates(Warp &warp, const Insn &insn, uint32_t mask) {
  const uint32_t *slots = warp.list(insn);
  uint32_t value = compare(warp, insn, mask), other = ~value;
  if (insn.count > 2) {
    uint32_t c = warp.predicate(insn, slots[2], mask);
    if (insn.aux & Negated)
      c = ~c;
    auto combine = [&](uint32_t a) {
      return insn.aux & CombineAnd  ? a & c
             : insn.aux & CombineOr ? a | c
                                    : a ^ c;
    };
    value = combine(value);
    other = combine(other);
  }
  if (slots[1] != slots[0])
    warp.setPredicate(slots[1], mask, other);
  warp.setPredicate(slots[0], mask, value);
}

/// set: all ones, or 1.0, in a register.
template <Comparison compare>
static void setRegister(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t value = compare(warp, insn, mask);
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  forLanes(mask,
           [&](unsigned i) { d[i] = value >> i & 1 ? uint32_t(insn.imm) : 0; });
}

namespace {
struct Pair {
  Handler *predicates, *registers;
};
} // namespace

template <Comparison compare>
static constexpr Pair pairOf() {
  return {setPredicates<compare>, setRegister<compare>};
}

template <typename T>
static Pair wholePair(Relation relation) {
  switch (relation) {
  case Eq:
    return pairOf<compareWhole<T, Eq>>();
  case Ne:
    return pairOf<compareWhole<T, Ne>>();
  case Lt:
    return pairOf<compareWhole<T, Lt>>();
  case Le:
    return pairOf<compareWhole<T, Le>>();
  case Gt:
    return pairOf<compareWhole<T, Gt>>();
  default:
    return pairOf<compareWhole<T, Ge>>();
  }
}

template <typename T>
static void select(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<T>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]), *b = warp.lanes<T>(insn.op[2]);
  uint32_t chosen = warp.predicate(insn, insn.op[3], mask);
  forLanes(mask, [&](unsigned i) { d[i] = chosen >> i & 1 ? a[i] : b[i]; });
}

static void selectPredicate(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t a = warp.predicate(insn, insn.op[1], mask),
           b = warp.predicate(insn, insn.op[2], mask);
  uint32_t c = warp.predicate(insn, insn.op[3], mask);
  warp.setPredicate(insn.op[0], mask, (a & c) | (b & ~c));
}

/// testp of f32.
static void testNumber(Warp &warp, const Insn &insn, uint32_t mask) {
  const uint32_t *a = warp.lanes<uint32_t>(insn.op[1]);
  uint32_t result = 0;
  forLanes(mask, [&](unsigned i) {
    int kind = std::fpclassify(floatOf(a[i]));
    bool finite = kind != FP_NAN && kind != FP_INFINITE;
    bool values[] = {finite,         kind == FP_INFINITE, kind != FP_NAN,
                     kind == FP_NAN, kind == FP_NORMAL,   kind == FP_SUBNORMAL};
    result |= uint32_t(values[insn.aux]) << i;
  });
  warp.setPredicate(insn.op[0], mask, result);
}

static Relation decodeRelation(Decoder &d, Type type, uint32_t &aux) {
  std::string_view name = d.takeAny();
  static constexpr std::string_view names[] = {"eq", "ne", "lt",  "le",
                                               "gt", "ge", "num", "nan"};
  static constexpr std::string_view unsignedNames[] = {"",   "",   "lo",
                                                       "ls", "hi", "hs"};
  for (unsigned i = 0; i < 8; ++i) {
    if (name == names[i] && (i < 6 || isFloat(type)))
      return Relation(i);
    if (i < 6 && isFloat(type) && name.size() == 3 &&
        name.substr(0, 2) == names[i] && name[2] == 'u') {
      aux |= Unordered;
      return Relation(i);
    }
    if (i >= 2 && i < 6 && isUnsigned(type) && name == unsignedNames[i])
      return Relation(i);
  }
  d.fail("expected a comparison of this type, but got '", d.statement.opcode,
         "'");
}

static bool decodeComparison(Decoder &d) {
  bool predicate = d.name == "setp";
  uint32_t &aux = d.insn.aux;
  d.insn.kind = Class::Compare;
  if (d.take("ftz"))
    aux |= Ftz;
  Type target = Type::Pred;
  if (!predicate) {
    target = d.type();
    if (target != Type::U32 && target != Type::S32 && target != Type::F32)
      failType(d);
    d.insn.imm = target == Type::F32 ? 0x3f800000 : 0xffffffff;
  }
  Type type = d.type();
  int combines = d.choose({"and", "or", "xor"});
  if (!predicate && combines >= 0)
    failType(d);
  if (combines >= 0)
    aux |= CombineAnd << combines;
  Relation relation = decodeRelation(d, type, aux);
  if (isBits(type) && relation > Ne)
    failType(d);
  aux |= relation;
  d.expectOperands(combines >= 0 ? 4 : 3);
  if (predicate) {
    const Operand &target = d.operand(0);
    d.list(d.predicateNamed(target.name));
    d.list(
        d.predicateNamed(target.second.empty() ? target.name : target.second));
    if (combines >= 0) {
      d.list(d.predicate(d.operand(3)));
      if (d.operand(3).negated)
        aux |= Negated;
    }
  } else {
    d.insn.op[0] = d.define(size_t(0), target);
  }
  d.insn.op[2] = d.use(1, type);
  d.insn.op[3] = d.use(2, type);
  Pair pair;
  switch (type) {
  case Type::B16:
  case Type::U16:
    pair = wholePair<uint16_t>(relation);
    break;
  case Type::B32:
  case Type::U32:
    pair = wholePair<uint32_t>(relation);
    break;
  case Type::B64:
  case Type::U64:
    pair = wholePair<uint64_t>(relation);
    break;
  case Type::S16:
    pair = wholePair<int16_t>(relation);
    break;
  case Type::S32:
    pair = wholePair<int32_t>(relation);
    break;
  case Type::S64:
    pair = wholePair<int64_t>(relation);
    break;
  case Type::F16:
    pair = pairOf<compareFloat<Half>>();
    break;
  case Type::BF16:
    pair = pairOf<compareFloat<BFloat>>();
    break;
  case Type::F32:
    pair = pairOf<compareFloat<float>>();
    break;
  case Type::F64:
    pair = pairOf<compareFloat<double>>();
    break;
  default:
    failType(d);
  }
  d.insn.handler = predicate ? pair.predicates : pair.registers;
  return true;
}

bool ptx::decodeCompare(Decoder &d) {
  if (d.name == "setp" || d.name == "set")
    return decodeComparison(d);
  if (d.name == "testp") {
    d.insn.kind = Class::Compare;
    int test = d.choose(
        {"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
    if (test < 0)
      d.fail("expected a test of a number, but got '", d.statement.opcode, "'");
    d.expect("f32");
    d.expectOperands(2);
    d.insn.aux = uint32_t(test);
    d.insn.op[0] = d.predicateNamed(d.operand(0).name);
    d.insn.op[1] = d.use(1, Type::F32);
    d.insn.handler = testNumber;
    return true;
  }
  if (d.name != "selp")
    return false;
  d.insn.kind = Class::Compare;
  Type type = d.type();
  d.expectOperands(4);
  d.insn.op[3] = d.predicate(d.operand(3));
  if (type == Type::Pred) {
    d.insn.op[0] = d.predicateNamed(d.operand(0).name);
    d.insn.op[1] = d.predicate(d.operand(1));
    d.insn.op[2] = d.predicate(d.operand(2));
    d.insn.handler = selectPredicate;
    return true;
  }
  if (sizeOf(type) < 2)
    failType(d);
  d.insn.op[0] = d.define(size_t(0), type);
  d.insn.op[1] = d.use(1, type);
  d.insn.op[2] = d.use(2, type);
  d.insn.handler = sizeOf(type) == 8 ? select<uint64_t> : select<uint32_t>;
  return true;
}

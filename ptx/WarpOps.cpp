// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the lanes of a warp say to each other. PTX ISA, "shfl.sync",
// "vote.sync", "match.sync", "redux.sync", "activemask", "elect.sync",
// "bar.warp.sync".

#include "Lanes.h"

using namespace ptx;

namespace {
enum ShuffleMode { Bfly, Down, Up, Idx };
} // namespace

/// The list is d and, where there is one, the predicate behind it.
static void shuffle(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  const uint32_t *a = warp.lanes<uint32_t>(insn.op[1]),
                 *b = warp.lanes<uint32_t>(insn.op[2]);
  const uint32_t *c = warp.lanes<uint32_t>(insn.op[3]);
  uint32_t values[32], valid = 0;
  std::memcpy(values, a, sizeof(values));
  forLanes(mask, [&](unsigned lane) {
    int bval = int(b[lane] & 31), cval = int(c[lane] & 31),
        segment = int(c[lane] >> 8 & 31), self = int(lane);
    int most = (self & segment) | (cval & ~segment), least = self & segment,
        from = self;
    bool ok = true;
    switch (ShuffleMode(insn.aux)) {
    case Bfly:
      from = self ^ bval;
      ok = from <= most;
      break;
    case Down:
      from = self + bval;
      ok = from <= most;
      break;
    case Up:
      from = self - bval;
      ok = from >= most;
      break;
    case Idx:
      from = least | (bval & ~segment);
      ok = from <= most;
      break;
    }
    if (!ok)
      from = self;
    if (!(mask >> from & 1))
      warp.fail(insn, lane,
                "expected a lane that shuffles as well, but got lane ", from);
    d[lane] = values[from];
    valid |= uint32_t(ok) << lane;
  });
  if (insn.imm2 >= 0)
    warp.setPredicate(uint32_t(insn.imm2), mask, valid);
}

namespace {
enum VoteMode { All, Any, Uni, Ballot };
} // namespace

static void vote(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t value = warp.predicate(insn, insn.op[1], mask);
  if (insn.imm)
    value = ~value & mask;
  if (insn.aux == Ballot) {
    uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
    forLanes(mask, [&](unsigned lane) { d[lane] = value; });
    return;
  }
  bool result = insn.aux == All   ? value == mask
                : insn.aux == Any ? value != 0
                                  : value == mask || value == 0;
  warp.setPredicate(insn.op[0], mask, result ? mask : 0);
}

template <typename T, bool all>
static void match(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  uint32_t results[32], same = mask;
  forLanes(mask, [&](unsigned lane) {
    results[lane] = 0;
    forLanes(mask, [&](unsigned other) {
      results[lane] |= uint32_t(a[other] == a[lane]) << other;
    });
    same &= results[lane];
  });
  forLanes(mask, [&](unsigned lane) {
    d[lane] = all ? (same == mask ? mask : 0) : results[lane];
  });
  if (all && insn.imm2 >= 0)
    warp.setPredicate(uint32_t(insn.imm2), mask, same == mask ? mask : 0);
}

namespace {
enum Reduction { RAdd, RMin, RMax, RAnd, ROr, RXor };
} // namespace

template <typename T>
static void reduce(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  const uint32_t *a = warp.lanes<uint32_t>(insn.op[1]);
  T result = T(a[__builtin_ctz(mask)]);
  forLanes(mask & (mask - 1), [&](unsigned lane) {
    T value = T(a[lane]);
    switch (Reduction(insn.aux)) {
    case RAdd:
      result = T(uint32_t(result) + uint32_t(value));
      break;
    case RMin:
      result = value < result ? value : result;
      break;
    case RMax:
      result = value > result ? value : result;
      break;
    case RAnd:
      result &= value;
      break;
    case ROr:
      result |= value;
      break;
    case RXor:
      result ^= value;
      break;
    }
  });
  forLanes(mask, [&](unsigned lane) { d[lane] = uint32_t(result); });
}

static void activeMask(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  forLanes(mask, [&](unsigned lane) { d[lane] = mask; });
}

/// Elects the lowest lane, as the hardware does; the manual leaves it open.
static void elect(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  unsigned leader = unsigned(__builtin_ctz(mask));
  forLanes(mask, [&](unsigned lane) { d[lane] = leader; });
  warp.setPredicate(insn.op[1], mask, 1u << leader);
}

/// What the lanes did before comes before what they do next.
static void synchronise(Warp &warp, const Insn &, uint32_t) { warp.tick(); }

static void useMembers(Decoder &d, size_t index) {
  d.insn.flags |= Converges;
  d.insn.members = int32_t(d.use(index, Type::U32));
}

bool ptx::decodeWarp(Decoder &d) {
  std::string_view name = d.name;
  d.insn.kind = Class::Warp;
  if (name == "bar" && d.take("warp")) {
    d.expect("sync");
    d.expectOperands(1);
    useMembers(d, 0);
    d.insn.handler = synchronise;
    return true;
  }
  if (name == "shfl") {
    d.expect("sync");
    int mode = d.choose({"bfly", "down", "up", "idx"});
    d.expect("b32");
    if (mode < 0)
      d.fail("expected a mode of shfl, but got '", d.statement.opcode, "'");
    d.expectOperands(5);
    d.insn.aux = uint32_t(mode);
    d.insn.op[0] = d.define(size_t(0), Type::B32);
    for (unsigned i = 1; i <= 3; ++i)
      d.insn.op[i] = d.use(i, Type::B32);
    const Operand &target = d.operand(0);
    d.insn.imm2 =
        target.second.empty() ? -1 : int64_t(d.predicateNamed(target.second));
    useMembers(d, 4);
    d.insn.handler = shuffle;
    return true;
  }
  if (name == "vote") {
    d.expect("sync");
    int mode = d.choose({"all", "any", "uni", "ballot"});
    d.expect(mode == Ballot ? "b32" : "pred");
    if (mode < 0)
      d.fail("expected a mode of vote, but got '", d.statement.opcode, "'");
    d.expectOperands(3);
    d.insn.aux = uint32_t(mode);
    d.insn.op[0] = mode == Ballot ? d.define(size_t(0), Type::B32)
                                  : d.predicateNamed(d.operand(0).name);
    d.insn.op[1] = d.predicate(d.operand(1));
    d.insn.imm = d.operand(1).negated;
    useMembers(d, 2);
    d.insn.handler = vote;
    return true;
  }
  if (name == "match") {
    int mode = d.choose({"any", "all"});
    d.expect("sync");
    Type type = d.type();
    if (mode < 0 || (type != Type::B32 && type != Type::B64))
      failType(d);
    d.expectOperands(3);
    d.insn.op[0] = d.define(size_t(0), Type::B32);
    d.insn.op[1] = d.use(1, type);
    const Operand &target = d.operand(0);
    d.insn.imm2 =
        target.second.empty() ? -1 : int64_t(d.predicateNamed(target.second));
    useMembers(d, 2);
    d.insn.handler =
        type == Type::B64
            ? (mode ? match<uint64_t, true> : match<uint64_t, false>)
            : (mode ? match<uint32_t, true> : match<uint32_t, false>);
    return true;
  }
  if (name == "redux") {
    d.require(80);
    d.expect("sync");
    int mode = d.choose({"add", "min", "max", "and", "or", "xor"});
    Type type = d.type();
    bool bits = mode >= RAnd;
    if (mode < 0 || sizeOf(type) != 4 || isFloat(type) || isBits(type) != bits)
      failType(d);
    d.expectOperands(3);
    d.insn.aux = uint32_t(mode);
    d.insn.op[0] = d.define(size_t(0), type);
    d.insn.op[1] = d.use(1, type);
    useMembers(d, 2);
    d.insn.handler = type == Type::S32 ? reduce<int32_t> : reduce<uint32_t>;
    return true;
  }
  if (name == "activemask") {
    d.expect("b32");
    d.expectOperands(1);
    d.insn.op[0] = d.define(size_t(0), Type::B32);
    d.insn.handler = activeMask;
    return true;
  }
  if (name == "elect") {
    d.require(90);
    d.expect("sync");
    d.expectOperands(2);
    d.insn.op[0] = d.define(size_t(0), Type::B32);
    if (d.operand(0).second.empty())
      d.fail("expected a predicate behind '|', but got none");
    d.insn.op[1] = d.predicateNamed(d.operand(0).second);
    useMembers(d, 1);
    d.insn.handler = elect;
    return true;
  }
  return false;
}

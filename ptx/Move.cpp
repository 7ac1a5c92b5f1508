// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies between registers, and addresses between spaces.

#include "Lanes.h"

using namespace ptx;

/// A copy of a register without a value has none either: it is a use of it that
/// is an error.
static void copyState(Warp &warp, uint32_t to, uint32_t value, uint32_t mask) {
  warp.initialised[to] = (warp.initialised[to] & ~mask) | (value & mask);
}

template <typename T>
static void move(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<T>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  forLanes(mask, [&](unsigned i) { d[i] = a[i]; });
  copyState(warp, insn.op[0], warp.initialised[insn.op[1]], mask);
}

static void movePredicate(Warp &warp, const Insn &insn, uint32_t mask) {
  warp.setPredicate(insn.op[0], mask, warp.predicate(insn, insn.op[1], mask));
}

/// {a, b} to one register: the list is the target and the parts, `aux` the bits
/// of a part.
template <typename T, typename Part>
static void join(Warp &warp, const Insn &insn, uint32_t mask) {
  const uint32_t *slots = warp.list(insn);
  auto *d = warp.lanes<T>(slots[0]);
  uint64_t low = insn.aux == 32 ? 0xffffffff : (uint64_t(1) << insn.aux) - 1;
  uint32_t state = 0xffffffffu;
  for (uint32_t part = 1; part < insn.count; ++part)
    state &= warp.initialised[slots[part]];
  forLanes(mask, [&](unsigned i) {
    uint64_t value = 0;
    for (uint32_t part = 1; part < insn.count; ++part)
      value |= (warp.lanes<Part>(slots[part])[i] & low)
               << (insn.aux * (part - 1));
    d[i] = T(value);
  });
  copyState(warp, slots[0], state, mask);
}

/// One register to {a, b}: the list is the parts and the source.
template <typename T, typename Part>
static void split(Warp &warp, const Insn &insn, uint32_t mask) {
  const uint32_t *slots = warp.list(insn);
  uint32_t parts = insn.count - 1;
  const auto *a = warp.lanes<T>(slots[parts]);
  uint64_t low = insn.aux == 32 ? 0xffffffff : (uint64_t(1) << insn.aux) - 1;
  uint32_t state = warp.initialised[slots[parts]];
  T values[32];
  std::memcpy(values, a, sizeof(values));
  for (uint32_t part = 0; part < parts; ++part) {
    auto *d = warp.lanes<Part>(slots[part]);
    forLanes(mask, [&](unsigned i) {
      d[i] = uint32_t(uint64_t(values[i]) >> (insn.aux * part) & low);
    });
    copyState(warp, slots[part], state, mask);
  }
}

/// cvta: adds the window of a space, or takes it away.
static void toGeneric(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<uint64_t>(insn.op[0]);
  const auto *a = warp.lanes<uint64_t>(insn.op[1]);
  forLanes(mask, [&](unsigned i) { d[i] = a[i] | uint64_t(insn.imm); });
}

static void fromGeneric(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<uint64_t>(insn.op[0]);
  const auto *a = warp.lanes<uint64_t>(insn.op[1]);
  forLanes(mask, [&](unsigned i) {
    if (a[i] >> windowShift != uint64_t(insn.imm) >> windowShift)
      warp.fail(insn, i, "expected a generic address of the space, but got ",
                a[i]);
    d[i] = a[i] ^ uint64_t(insn.imm);
  });
}

static void isInSpace(Warp &warp, const Insn &insn, uint32_t mask) {
  const auto *a = warp.lanes<uint64_t>(insn.op[1]);
  uint32_t result = 0;
  forLanes(mask, [&](unsigned i) {
    result |= uint32_t(a[i] >> windowShift == uint64_t(insn.imm) >> windowShift)
              << i;
  });
  warp.setPredicate(insn.op[0], mask, result);
}

/// mapa: an address of this block as one of another block of the cluster.
template <typename T>
static void mapToBlock(Warp &warp, const Insn &insn, uint32_t mask) {
  auto *d = warp.lanes<T>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  const uint32_t *rank = warp.lanes<uint32_t>(insn.op[2]);
  size_t blocks = warp.block->cluster->blocks.size();
  forLanes(mask, [&](unsigned i) {
    if (rank[i] >= blocks)
      warp.fail(insn, i, "expected a rank below ", blocks,
                " in the cluster, but got ", rank[i]);
    uint64_t inside = (uint64_t(1) << rankShift) - 1;
    uint64_t window = uint64_t(a[i]) >> windowShift << windowShift;
    d[i] = T(window | (uint64_t(rank[i]) + 1) << rankShift | (a[i] & inside));
  });
}

template <typename T>
static void rankOf(Warp &warp, const Insn &insn, uint32_t mask) {
  uint32_t *d = warp.lanes<uint32_t>(insn.op[0]);
  const auto *a = warp.lanes<T>(insn.op[1]);
  forLanes(mask, [&](unsigned i) {
    uint32_t rank = uint32_t(a[i]) >> rankShift;
    d[i] = rank ? rank - 1 : warp.block->rank;
  });
}

static bool decodeParts(Decoder &d, Type type) {
  bool joins = d.operand(1).kind == Operand::Vector;
  const Operand &parts = d.operand(joins ? 1 : 0),
                &whole = d.operand(joins ? 0 : 1);
  unsigned count = unsigned(parts.elements.size());
  if ((count != 2 && count != 4) || sizeOf(type) % count ||
      sizeOf(type) / count < (count == 2 ? 1 : 2) ||
      parts.kind != Operand::Vector || whole.kind == Operand::Vector)
    d.fail("expected 2 or 4 equal parts of a register, but got ", count);
  unsigned bytes = sizeOf(type) / count;
  Type part = bytes == 1 ? Type::B8 : bytes == 2 ? Type::B16 : Type::B32;
  d.insn.aux = 8 * bytes;
  if (joins)
    d.list(d.define(whole, type));
  for (const Operand &element : parts.elements)
    d.list(joins ? d.use(element, part) : d.define(element, part));
  if (!joins)
    d.list(d.use(whole, type));
  bool wide = sizeOf(type) == 8;
  d.insn.flags |= CopiesState;
  if (joins)
    d.insn.handler = wide ? join<uint64_t, uint32_t> : join<uint32_t, uint32_t>;
  else
    d.insn.handler =
        wide ? split<uint64_t, uint32_t> : split<uint32_t, uint32_t>;
  return true;
}

static bool decodeAddress(Decoder &d) {
  d.insn.kind = Class::Move;
  bool from = d.take("to");
  int space = d.choose({"global", "shared", "local", "param", "const",
                        "shared::cta", "shared::cluster"});
  static constexpr uint64_t windows[] = {
      0, sharedWindow, localWindow, paramWindow, 0, sharedWindow, sharedWindow};
  if (space < 0)
    d.fail("expected a space, but got '", d.statement.opcode, "'");
  d.insn.imm = int64_t(windows[space]);
  d.expectOperands(2);
  if (d.name == "isspacep") {
    d.insn.op[0] = d.predicateNamed(d.operand(0).name);
    d.insn.op[1] = d.use(1, Type::U64);
    d.insn.handler = isInSpace;
    return true;
  }
  if (!d.take("u64"))
    d.fail("expected type '.u64', but got '", d.statement.opcode, "'");
  d.insn.op[0] = d.define(size_t(0), Type::U64);
  d.insn.op[1] = d.use(1, Type::U64);
  d.insn.handler = from ? fromGeneric : toGeneric;
  return true;
}

bool ptx::decodeMove(Decoder &d) {
  if (d.name == "cvta" || d.name == "isspacep")
    return decodeAddress(d);
  if (d.name == "mapa" || d.name == "getctarank") {
    d.insn.kind = Class::Move;
    d.require(90);
    d.take("shared::cluster");
    Type type = d.type();
    if (type != Type::U32 && type != Type::U64)
      failType(d);
    bool maps = d.name == "mapa", wide = type == Type::U64;
    d.expectOperands(maps ? 3 : 2);
    d.insn.op[0] = d.define(size_t(0), maps ? type : Type::U32);
    d.insn.op[1] = d.use(1, type);
    if (maps)
      d.insn.op[2] = d.use(2, Type::U32);
    d.insn.handler = maps ? (wide ? mapToBlock<uint64_t> : mapToBlock<uint32_t>)
                          : (wide ? rankOf<uint64_t> : rankOf<uint32_t>);
    return true;
  }
  if (d.name != "mov")
    return false;
  d.insn.kind = Class::Move;
  Type type = d.type();
  d.expectOperands(2);
  if (type == Type::Pred) {
    d.insn.op[0] = d.predicateNamed(d.operand(0).name);
    d.insn.op[1] = d.predicate(d.operand(1));
    d.insn.handler = movePredicate;
    return true;
  }
  if (d.operand(0).kind == Operand::Vector ||
      d.operand(1).kind == Operand::Vector)
    return decodeParts(d, type);
  if (sizeOf(type) < 2)
    failType(d);
  d.insn.op[0] = d.define(size_t(0), type);
  d.insn.op[1] = d.use(1, type);
  d.insn.flags |= CopiesState;
  d.insn.handler = sizeOf(type) == 8 ? move<uint64_t> : move<uint32_t>;
  return true;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads and stores. PTX ISA, "ld", "ld.global.nc", "st".

#include "Access.h"
#include "Lanes.h"

using namespace ptx;

namespace {
/// Bits of Insn::aux: bytes of an element, whether it is signed, whether its
/// registers have 64 bits, whether nothing writes it in the launch (.nc), and
/// the space.
constexpr uint32_t signedBit = 16, wideBit = 32, constantBit = 64,
                   spaceShift = 8;
} // namespace

static Space spaceOf(const Insn &insn) {
  return Space(insn.aux >> spaceShift & 7);
}

/// `bytes` is a power of two.
static void checkAlignment(Warp &warp, const Insn &insn, unsigned lane,
                           uint64_t address, unsigned bytes) {
  if (address & (bytes - 1))
    warp.fail(insn, lane, "expected an address that is a multiple of ", bytes,
              ", but got ", address);
}

static uint8_t *accessLocal(Warp &warp, const Insn &insn, unsigned lane,
                            uint64_t address, unsigned bytes, bool writes) {
  uint32_t size = warp.kernel->localBytes;
  if (address >= size || bytes > size - address)
    warp.fail(insn, lane, "expected ", bytes,
              " bytes of local memory, which has ", size, ", but got address ",
              address);
  size_t at = size_t(lane) * size + address;
  for (unsigned i = 0; i < bytes; ++i) {
    if (!writes && !warp.localWritten[at + i])
      warp.fail(insn, lane,
                "expected bytes with a value, but got local address ",
                address + i, ", which was never written");
    if (writes)
      warp.localWritten[at + i] = 1;
  }
  return &warp.local[at];
}

static const uint8_t *readParameter(Warp &warp, const Insn &insn, unsigned lane,
                                    uint64_t address, unsigned bytes) {
  const auto &parameters = warp.block->cluster->launch->options->parameters;
  if (address >= parameters.size() || bytes > parameters.size() - address)
    warp.fail(insn, lane, "expected ", bytes,
              " bytes of parameters, which have ", parameters.size(),
              ", but got offset ", address);
  return &parameters[address];
}

/// The space of an address, and what it is there.
static Space resolve(const Insn &insn, uint64_t &address) {
  Space space = spaceOf(insn);
  if (space != Space::Generic)
    return space;
  uint64_t window = address >> windowShift;
  if (window == 0 || window > 3)
    return Space::Global;
  address -= window << windowShift;
  return window == 1   ? Space::Shared
         : window == 2 ? Space::Local
                       : Space::Param;
}

/// Where the bytes of a lane lie, after every check. `address` becomes that in
/// its space; `values` are those that a store writes.
static uint8_t *access(Warp &warp, const Insn &insn, unsigned lane,
                       uint64_t &address, unsigned bytes, const uint8_t *values,
                       Space &space) {
  bool writes = values;
  space = resolve(insn, address);
  checkAlignment(warp, insn, lane, address, bytes);
  switch (space) {
  case Space::Shared: {
    Block &block = blockOf(warp, insn, lane, address, bytes);
    if (writes)
      block.shared.write(warp, insn, lane, uint32_t(address), bytes, values);
    else
      block.shared.read(warp, insn, lane, uint32_t(address), bytes);
    return block.shared.at(uint32_t(address));
  }
  case Space::Local:
    return accessLocal(warp, insn, lane, address, bytes, writes);
  case Space::Param:
    if (writes)
      warp.fail(insn, lane,
                "expected memory that may be written, but got a parameter");
    return const_cast<uint8_t *>(
        readParameter(warp, insn, lane, address, bytes));
  default:
    return accessGlobal(warp, insn, lane, address, bytes,
                        writes ? Access::Write : Access::Read);
  }
}

static void count(Warp &warp, const uint64_t *addresses, uint32_t mask,
                  unsigned bytes, Space space, Access access) {
  if (space == Space::Shared)
    countShared(warp.block->cluster->counts, addresses, mask, bytes);
  else if (space == Space::Global)
    countGlobal(warp, addresses, mask, access);
}

static uint64_t extend(const Insn &insn, const uint8_t *from, unsigned bytes) {
  uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  if ((insn.aux & signedBit) && (value >> (8 * bytes - 1) & 1))
    value |= ~uint64_t(0) << (8 * bytes - 1);
  return value;
}

/// Writes what lies at `from[lane]` to the registers of each lane.
static void fill(Warp &warp, const Insn &insn, uint32_t mask,
                 const uint8_t *const *from) {
  const uint32_t *slots = warp.list(insn);
  unsigned size = insn.aux & 15;
  bool isWide = insn.aux & wideBit;
  for (uint32_t i = 0; i < insn.count; ++i) {
    auto *narrow = warp.lanes<uint32_t>(slots[i]);
    auto *wide = warp.lanes<uint64_t>(slots[i]);
    if (size == 4 && !isWide)
      forLanes(mask, [&](unsigned lane) {
        std::memcpy(&narrow[lane], from[lane] + 4 * i, 4);
      });
    else
      forLanes(mask, [&](unsigned lane) {
        uint64_t value = extend(insn, from[lane] + i * size, size);
        if (isWide)
          wide[lane] = value;
        else
          narrow[lane] = uint32_t(value);
      });
  }
}

/// Checks reads of shared addresses, which become those in their blocks.
static void readShared(Warp &warp, const Insn &insn, uint32_t mask,
                       uint64_t *addresses, unsigned bytes,
                       const uint8_t **from) {
  for (uint32_t rest = mask; rest;) {
    // Lanes in a row often read one address.
    unsigned first = unsigned(__builtin_ctz(rest));
    uint64_t address = addresses[first];
    uint32_t before = rest;
    do
      rest &= rest - 1;
    while (rest && addresses[__builtin_ctz(rest)] == address);
    uint32_t same = before & ~rest;
    checkAlignment(warp, insn, first, address, bytes);
    Block &block = blockOf(warp, insn, first, address, bytes);
    auto inside = uint32_t(address);
    if (!(same & (same - 1)) || !block.shared.readTogether(warp, inside, bytes))
      forLanes(same, [&](unsigned lane) {
        block.shared.read(warp, insn, lane, inside, bytes);
      });
    const uint8_t *at = block.shared.at(inside);
    for (; same; same &= same - 1) {
      unsigned lane = unsigned(__builtin_ctz(same));
      from[lane] = at;
      addresses[lane] = address;
    }
  }
}

static void load(Warp &warp, const Insn &insn, uint32_t mask) {
  unsigned bytes = (insn.aux & 15) * insn.count;
  uint64_t addresses[32];
  const uint8_t *from[32];
  Space space = spaceOf(insn);
  uint64_t bits = 0;
  forLanes(mask, [&](unsigned lane) {
    addresses[lane] = warp.addressOf(insn, 0, lane) + uint64_t(insn.imm);
    bits |= addresses[lane];
  });
  if (space == Space::Shared) {
    readShared(warp, insn, mask, addresses, bytes, from);
  } else if (space == Space::Global && !(bits & (bytes - 1))) {
    readGlobal(warp, insn, mask, addresses, bytes, from);
  } else {
    forLanes(mask, [&](unsigned lane) {
      from[lane] =
          access(warp, insn, lane, addresses[lane], bytes, nullptr, space);
    });
  }
  if (insn.aux & constantBit)
    checkConstant(warp, insn, mask, addresses, bytes);
  fill(warp, insn, mask, from);
  count(warp, addresses, mask, bytes, space, Access::Read);
}

static void store(Warp &warp, const Insn &insn, uint32_t mask) {
  const uint32_t *slots = warp.list(insn);
  unsigned size = insn.aux & 15, bytes = size * insn.count;
  uint64_t addresses[32];
  Space space = Space::Global;
  forLanes(mask, [&](unsigned lane) {
    uint64_t address = warp.addressOf(insn, 0, lane) + uint64_t(insn.imm);
    uint8_t values[16];
    for (uint32_t i = 0; i < insn.count; ++i) {
      uint64_t value = insn.aux & wideBit
                           ? warp.lanes<uint64_t>(slots[i])[lane]
                           : warp.lanes<uint32_t>(slots[i])[lane];
      std::memcpy(values + i * size, &value, size);
    }
    uint8_t *to = access(warp, insn, lane, address, bytes, values, space);
    addresses[lane] = address;
    std::memcpy(to, values, bytes);
  });
  count(warp, addresses, mask, bytes, space, Access::Write);
}

static void loadParameter(Warp &warp, const Insn &insn, uint32_t mask) {
  unsigned bytes = (insn.aux & 15) * insn.count;
  const uint8_t *from[32];
  uint64_t last = 0;
  const uint8_t *at = nullptr;
  forLanes(mask, [&](unsigned lane) {
    uint64_t address = warp.addressOf(insn, 0, lane) + uint64_t(insn.imm);
    if (!at || address != last) { // most often one of all lanes
      checkAlignment(warp, insn, lane, address, bytes);
      at = readParameter(warp, insn, lane, last = address, bytes);
    }
    from[lane] = at;
  });
  fill(warp, insn, mask, from);
}

/// Cache hints change nothing here; each may stand once.
static void decodeHints(Decoder &d, bool loads) {
  int order = d.choose({"weak", "relaxed", "volatile", "acquire", "release"});
  if (order == 1 || order >= 3) {
    if (d.choose({"cta", "cluster", "gpu", "sys"}) < 0)
      d.fail("expected a scope, but got '", d.statement.opcode, "'");
    if ((order == 3) != loads && order != 1)
      d.fail("expected an order of '", d.name, "', but got '",
             d.statement.opcode, "'");
  }
  d.choose({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  d.choose({"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first",
            "L1::evict_last", "L1::no_allocate"});
  d.choose({"L2::64B", "L2::128B", "L2::256B"});
}

bool ptx::decodeLoadStore(Decoder &d) {
  bool loads = d.name == "ld" || d.name == "ldu";
  if (!loads && d.name != "st")
    return false;
  d.insn.kind = Class::LoadStore;
  int place = d.choose({"param", "global", "shared", "local", "const",
                        "shared::cta", "shared::cluster"});
  static constexpr Space spaces[] = {Space::Param, Space::Global, Space::Shared,
                                     Space::Local, Space::Global, Space::Shared,
                                     Space::Shared};
  Space space = place < 0 ? Space::Generic : spaces[place];
  if (space == Space::Param && d.size() == 2) {
    // Those of calls are variables of the thread.
    const Operand &at = d.operand(loads ? 1 : 0);
    const Place *variable =
        at.kind == Operand::Address ? d.builder.findPlace(at.name) : nullptr;
    if (variable && variable->space == Place::Local)
      space = Space::Local;
  }
  if (!loads && (space == Space::Param || place == 4))
    d.fail("expected a space that is written, but got '", d.statement.opcode,
           "'");
  bool isConstant = loads && place == 1 && d.take("nc");
  decodeHints(d, loads);
  int vector = d.choose({"v2", "v4"});
  unsigned count = vector < 0 ? 1 : vector ? 4 : 2;
  Type type = d.type();
  unsigned size = sizeOf(type);
  if (!size || size * count > 16 || type == Type::F16 || type == Type::BF16 ||
      type == Type::F16x2 || type == Type::BF16x2 || type == Type::TF32)
    d.fail("expected a type of at most 16 bytes in memory, but got '",
           d.statement.opcode, "'");
  d.expectOperands(2);
  const Operand &values = d.operand(loads ? 0 : 1),
                &at = d.operand(loads ? 1 : 0);
  std::vector<Operand> one{values};
  const std::vector<Operand> &elements =
      values.kind == Operand::Vector ? values.elements : one;
  if (elements.size() != count)
    d.fail("expected ", count, " registers, but got ", elements.size());
  bool wide = false;
  for (const Operand &element : elements) {
    d.list(loads ? d.define(element, type, true) : d.use(element, type, true));
    unsigned bytes = element.name == "_" || element.kind == Operand::Number
                         ? size
                         : d.bytesOf(element);
    if (&element != &elements[0] && element.name != "_" && (bytes == 8) != wide)
      d.fail("expected registers of one size, but got others");
    wide |= bytes == 8;
  }
  d.address(at, 0, space, d.insn.imm);
  d.insn.aux = size | (isSigned(type) ? signedBit : 0) | (wide ? wideBit : 0) |
               (isConstant ? constantBit : 0) | uint32_t(space) << spaceShift;
  d.insn.handler = space == Space::Param ? loadParameter : loads ? load : store;
  if (!loads && (space == Space::Shared || space == Space::Generic))
    d.storesShared(size * count);
  if (!loads && (space == Space::Global || space == Space::Generic))
    d.storesGlobal(size * count);
  return true;
}

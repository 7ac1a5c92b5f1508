// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Atomic operations, lane by lane in their order. PTX ISA, "atom", "red".

#include "Access.h"
#include "Lanes.h"

using namespace ptx;

namespace {
enum Operation { Add, Min, Max, And, Or, Xor, Exch, Cas, Inc, Dec };
} // namespace

template <typename T>
static T combine(Operation operation, T old, T b, T c) {
  switch (operation) {
  case Add:
    if constexpr (std::is_integral_v<T>)
      return T(uint64_t(old) + uint64_t(b));
    else
      return old + b;
  case Min:
    return b < old ? b : old;
  case Max:
    return b > old ? b : old;
  case Exch:
    return b;
  case Cas:
    return old == b ? c : old;
  default:
    break;
  }
  if constexpr (std::is_integral_v<T>)
    switch (operation) {
    case And:
      return T(old & b);
    case Or:
      return T(old | b);
    case Xor:
      return T(old ^ b);
    case Inc:
      return old >= b ? T(0) : T(old + 1);
    case Dec:
      return old == 0 || old > b ? b : T(old - 1);
    default:
      break;
    }
  return old;
}

/// The list is the target (or an unused slot), b and c. `aux` is the operation
/// and, from bit 8 on, the space.
template <typename T>
static void atomic(Warp &warp, const Insn &insn, uint32_t mask) {
  const uint32_t *slots = warp.list(insn);
  auto *d = warp.lanes<T>(slots[0]);
  const auto *b = warp.lanes<T>(slots[1]), *c = warp.lanes<T>(slots[2]);
  uint64_t addresses[32];
  bool shared = false;
  forLanes(mask, [&](unsigned lane) {
    uint64_t address = warp.addressOf(insn, 0, lane) + uint64_t(insn.imm);
    Space space = Space(insn.aux >> 8 & 7);
    if (space == Space::Generic) {
      space = address >> windowShift == 1 ? Space::Shared : Space::Global;
      address -= space == Space::Shared ? sharedWindow : 0;
    }
    if (address % sizeof(T))
      warp.fail(insn, lane, "expected an address that is a multiple of ",
                sizeof(T), ", but got ", address);
    uint8_t *at;
    shared = space == Space::Shared;
    if (shared) {
      Block &block = blockOf(warp, insn, lane, address, sizeof(T));
      block.shared.atomic(warp, insn, lane, uint32_t(address), sizeof(T));
      at = block.shared.at(uint32_t(address));
    } else {
      at = accessGlobal(warp, insn, lane, address, sizeof(T), Access::Atomic);
    }
    addresses[lane] = address;
    T old;
    std::memcpy(&old, at, sizeof(T));
    T made = combine(Operation(insn.aux & 15), old, ptx::valueOf<T>(b[lane]),
                     ptx::valueOf<T>(c[lane]));
    std::memcpy(at, &made, sizeof(T));
    d[lane] = storageOf<T>(old);
  });
  ++warp.block->cluster->version;
  Counts &counts = warp.block->cluster->counts;
  if (shared)
    countShared(counts, addresses, mask, sizeof(T));
  else
    countGlobal(warp, addresses, mask, Access::Atomic);
}

bool ptx::decodeAtomic(Decoder &d) {
  bool returns = d.name == "atom";
  if (!returns && d.name != "red")
    return false;
  if (d.take("async"))
    d.fail("expected an instruction that the interpreter knows, but got '",
           d.statement.opcode, "'");
  d.insn.kind = Class::Atomic;
  d.choose({"relaxed", "acquire", "release", "acq_rel"});
  d.choose({"cta", "cluster", "gpu", "sys"});
  int place = d.choose({"global", "shared", "shared::cta", "shared::cluster"});
  Space space = place < 0 ? Space::Generic
                : place   ? Space::Shared
                          : Space::Global;
  int operation = d.choose(
      {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  Type type = d.type();
  if (operation < 0 || sizeOf(type) < 4 || type == Type::F16x2 ||
      type == Type::BF16x2 || type == Type::TF32 ||
      (isFloat(type) && operation != Add) ||
      (isBits(type) != (operation >= And && operation <= Cas)))
    failType(d);
  if (!returns && operation >= Exch && operation <= Cas)
    failType(d);
  size_t sources = operation == Cas ? 2 : 1, first = returns ? 1 : 0;
  d.expectOperands(first + 1 + sources);
  d.list(returns ? d.define(size_t(0), type) : d.builder.scratch());
  d.address(d.operand(first), 0, space, d.insn.imm);
  d.list(d.use(first + 1, type));
  d.list(d.use(first + sources, type));
  d.insn.aux = uint32_t(operation) | uint32_t(space) << 8;
  if (space != Space::Shared)
    d.builder.kernel.globalAtomics = true;
  switch (type) {
  case Type::F32:
    d.insn.handler = atomic<float>;
    break;
  case Type::F64:
    d.insn.handler = atomic<double>;
    break;
  case Type::S32:
    d.insn.handler = atomic<int32_t>;
    break;
  case Type::S64:
    d.insn.handler = atomic<int64_t>;
    break;
  default:
    d.insn.handler = sizeOf(type) == 8 ? atomic<uint64_t> : atomic<uint32_t>;
    break;
  }
  return true;
}

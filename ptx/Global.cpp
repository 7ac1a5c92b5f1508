// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Races, bytes without a value, and addresses outside of allocations, in global
// memory.

#include "Machine.h"

using namespace ptx;

// Shadow::blocks is launch (16 bits), writing block (24), reading block (24),
// where a block is a cluster by its number plus one, and 0 none. A block that
// only reads leaves no trace behind another that reads as well: `several`.
static constexpr uint64_t several = 0xffffff, atomics = 0xfffffe;
// Shadow::threads is the writer's stamp and the reader's, each a clock (18
// bits) and a thread of the cluster (14).
static constexpr uint32_t maxClock = (1u << 18) - 1;

static bool isAfter(const Warp &warp, unsigned lane, uint32_t stamp) {
  unsigned thread = stamp & 0x3fff, other = thread / 32;
  uint32_t clock = stamp >> 14;
  if (other == warp.id)
    return clock < warp.now() || thread % 32 == lane;
  return warp.clock[other] >= clock;
}

[[noreturn]] static void failRace(Warp &warp, const Insn &insn, unsigned lane,
                                  uint64_t address, const char *what,
                                  uint64_t block) {
  if (block == atomics)
    warp.fail(insn, lane, "expected one launch for each ", what,
              " of global address ", address,
              ", but got a race with an atomic operation");
  if (block == several)
    warp.fail(insn, lane, "expected one launch for each ", what,
              " of global address ", address,
              ", but got a race with several blocks");
  warp.fail(insn, lane, "expected one launch for each ", what,
            " of global address ", address, ", but got a race with block ",
            block - 1);
}

namespace {
/// The accessing warp: what Shadow has of it, the same for all granules.
struct Visitor {
  uint64_t launch, block;
  uint32_t stamp;
  bool isSerial;

  Visitor(const Warp &warp, unsigned lane) {
    const Cluster &cluster = *warp.block->cluster;
    launch = cluster.launch->memory->launchNumber() & 0x7fff;
    block = (cluster.index & 0x7fffff) + 1;
    stamp = std::min(warp.now(), maxClock) << 14 | (warp.id * 32 + lane);
    isSerial = cluster.launch->isSerial;
  }
};
} // namespace

static inline void note(Warp &warp, const Insn &insn, unsigned lane,
                        uint64_t address, const Visitor &visitor,
                        Shadow &shadow, Access access) {
  uint64_t launch = visitor.launch, me = visitor.block;
  uint64_t old = shadow.blocks.load(std::memory_order_acquire), wanted;
  uint64_t threads = 0;
  for (;;) {
    bool known = old >> 49 == launch;
    // The stamps of a launch before are gone before anybody can see that this
    // one was here.
    if (known)
      threads = shadow.threads.load(std::memory_order_relaxed);
    else
      shadow.threads.store(threads = 0, std::memory_order_relaxed);
    uint64_t state = known ? old & 0xffffffffffff : 0;
    uint64_t writer = state >> 24, reader = state & several;
    bool allAtomic = !writer || (known && (old >> 48 & 1));
    if (access == Access::Read) {
      if (writer && writer != me)
        failRace(warp, insn, lane, address, "write and read", writer);
      reader = reader == 0 || reader == me ? me : several;
    } else {
      bool atomic = access == Access::Atomic;
      if (writer && writer != me && !(atomic && allAtomic))
        failRace(warp, insn, lane, address, "write", writer);
      if (reader && reader != me)
        failRace(warp, insn, lane, address, "read and write", reader);
      writer = writer && writer != me ? atomics : me;
      allAtomic &= atomic;
    }
    wanted = launch << 49 | uint64_t(allAtomic) << 48 | writer << 24 | reader;
    if (wanted == old)
      break;
    if (visitor.isSerial) {
      shadow.blocks.store(wanted, std::memory_order_relaxed);
      break;
    }
    if (shadow.blocks.compare_exchange_weak(
            old, wanted, std::memory_order_acq_rel, std::memory_order_acquire))
      break;
  }
  uint32_t wrote = uint32_t(threads >> 32), readIt = uint32_t(threads);
  auto raceInside = [&](const char *what, uint32_t other) {
    const Cluster &cluster = *warp.block->cluster;
    unsigned thread = other & 0x3fff;
    size_t perBlock = cluster.blocks[0].warps.size();
    warp.fail(insn, lane, "expected a barrier between ", what,
              " of global address ", address, ", but got a race with thread ",
              cluster.blocks[thread / 32 / perBlock]
                  .warps[thread / 32 % perBlock]
                  .thread(thread % 32));
  };
  bool ordered = access == Access::Atomic;
  if (wrote && !ordered && !isAfter(warp, lane, wrote))
    raceInside(access == Access::Read ? "a write and a read" : "two writes",
               wrote);
  if (access != Access::Read && readIt && !ordered &&
      !isAfter(warp, lane, readIt))
    raceInside("a read and a write", readIt);
  if (access == Access::Read)
    readIt = visitor.stamp;
  else if (access == Access::Write)
    wrote = visitor.stamp, readIt = 0;
  shadow.threads.store(uint64_t(wrote) << 32 | readIt,
                       std::memory_order_relaxed);
}

/// Notes that a granule is read that is not written in this launch. Says
/// whether that is so.
static inline bool noteRead(const Visitor &visitor, Shadow &shadow) {
  uint64_t old = shadow.blocks.load(std::memory_order_acquire);
  uint64_t unwritten = visitor.launch << 49 | uint64_t(1) << 48;
  uint64_t mine = unwritten | visitor.block, others = unwritten | several;
  if (old != mine && old != others) {
    bool known = old >> 49 == visitor.launch;
    if (!visitor.isSerial || (known && (old >> 24) != unwritten >> 24))
      return false;
    shadow.blocks.store(known ? others : mine, std::memory_order_relaxed);
  }
  // Without a write there is no stamp of one.
  shadow.threads.store(visitor.stamp, std::memory_order_relaxed);
  return true;
}

/// The first of `size` bytes without a value, or `size`.
static unsigned findUnwritten(const Allocation &from, uint64_t offset,
                              unsigned size) {
  if (from.isDefined)
    return size;
  const uint8_t *written = &from.written[offset];
  unsigned i = 0;
  for (uint64_t eight; i + 8 <= size; i += 8) {
    std::memcpy(&eight, written + i, 8);
    if (eight != 0x0101010101010101)
      break;
  }
  while (i < size && written[i])
    ++i;
  return i;
}

uint8_t *ptx::accessGlobal(Warp &warp, const Insn &insn, unsigned lane,
                           uint64_t address, unsigned size, Access access) {
  Memory &memory = *warp.block->cluster->launch->memory;
  Allocation *found = warp.lastAllocation;
  if (!found || address - found->address >= found->size)
    found = memory.find(address);
  if (!found || size > found->size - (address - found->address))
    warp.fail(insn, lane, "expected ", size,
              " bytes inside of an allocation, but got global address ",
              address,
              found ? sparse_opt::concatenate(
                          ", ", found->address + found->size - address,
                          " bytes before an end")
                    : "");
  warp.lastAllocation = found;
  uint64_t offset = address - found->address;
  unsigned unwritten =
      access == Access::Write ? size : findUnwritten(*found, offset, size);
  if (unwritten < size)
    warp.fail(insn, lane,
              "expected bytes with a value, but got global address ",
              address + unwritten, ", which was never written");
  unsigned shift = memory.granuleShift();
  Visitor visitor(warp, lane);
  bool notes = warp.block->cluster->launch->options->findsGlobalRaces;
  for (uint64_t i = offset >> shift; notes && i <= (offset + size - 1) >> shift;
       ++i)
    if (access != Access::Read || !noteRead(visitor, found->shadow[i]))
      note(warp, insn, lane, address, visitor, found->shadow[i], access);
  if (access != Access::Read && !found->isDefined)
    std::memset(&found->written[offset], 1, size);
  return &found->bytes[offset];
}

void ptx::readGlobal(Warp &warp, const Insn &insn, uint32_t mask,
                     const uint64_t *addresses, unsigned size,
                     const uint8_t **from) {
  const Launch &launch = *warp.block->cluster->launch;
  unsigned shift = launch.memory->granuleShift();
  bool notes = launch.options->findsGlobalRaces;
  Visitor visitor(warp, 0);
  uint32_t stamp = visitor.stamp;
  forLanes(mask, [&](unsigned lane) {
    const Allocation *found = warp.lastAllocation;
    uint64_t offset = found ? addresses[lane] - found->address : 0;
    // Where anything is unusual, all is checked.
    bool isUsual = found && offset < found->size &&
                   size <= found->size - offset &&
                   findUnwritten(*found, offset, size) == size;
    visitor.stamp = stamp + lane;
    uint64_t end = (offset + size - 1) >> shift;
    for (uint64_t i = offset >> shift; notes && isUsual && i <= end; ++i)
      isUsual = noteRead(visitor, found->shadow[i]);
    from[lane] = isUsual ? &found->bytes[offset]
                         : accessGlobal(warp, insn, lane, addresses[lane], size,
                                        Access::Read);
  });
}

void ptx::checkConstant(Warp &warp, const Insn &insn, uint32_t mask,
                        const uint64_t *addresses, unsigned size) {
  const Launch &launch = *warp.block->cluster->launch;
  unsigned shift = launch.memory->granuleShift();
  if (!launch.options->findsGlobalRaces)
    return;
  Visitor visitor(warp, 0);
  forLanes(mask, [&](unsigned lane) {
    const Allocation *found = launch.memory->find(addresses[lane]);
    uint64_t offset = addresses[lane] - found->address;
    for (uint64_t i = offset >> shift; i <= (offset + size - 1) >> shift; ++i) {
      uint64_t state = found->shadow[i].blocks.load(std::memory_order_acquire);
      bool isWritten = state >> 49 == visitor.launch && (state >> 24 & several);
      if (isWritten)
        warp.fail(insn, lane,
                  "expected memory that nothing writes in a launch for "
                  "ld.global.nc, but got a write of global address ",
                  found->address + (i << shift));
    }
  });
}

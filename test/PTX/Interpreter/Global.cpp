// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Races, bytes without a value, and addresses outside of allocations, in global
// memory.

#include "Machine.h"

using namespace ptx;

// Shadow::blocks is launch (16 bits), writing block (24), reading block (24),
// where a block is a cluster by its number plus one. A block that only reads
// leaves no trace behind another that reads as well: `several`.
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

static void note(Warp &warp, const Insn &insn, unsigned lane, uint64_t address,
                 Shadow &shadow, Access access) {
  Cluster &cluster = *warp.block->cluster;
  uint64_t launch = cluster.launch->memory->launchNumber() & 0x7fff;
  uint64_t me = (cluster.index & 0x7fffff) + 1;
  uint32_t stamp = std::min(warp.now(), maxClock) << 14 | (warp.id * 32 + lane);
  uint64_t old = shadow.blocks.load(std::memory_order_acquire), wanted;
  uint64_t threads = 0;
  do {
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
  } while (wanted != old && !shadow.blocks.compare_exchange_weak(
                                old, wanted, std::memory_order_acq_rel,
                                std::memory_order_acquire));
  uint32_t wrote = uint32_t(threads >> 32), readIt = uint32_t(threads);
  auto raceInside = [&](const char *what, uint32_t other) {
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
    readIt = stamp;
  else if (access == Access::Write)
    wrote = stamp, readIt = 0;
  shadow.threads.store(uint64_t(wrote) << 32 | readIt,
                       std::memory_order_relaxed);
}

uint8_t *ptx::accessGlobal(Warp &warp, const Insn &insn, unsigned lane,
                           uint64_t address, unsigned size, Access access) {
  Memory &memory = *warp.block->cluster->launch->memory;
  Allocation *found = warp.lastAllocation;
  if (!found || address - found->address >= found->size)
    found = memory.find(address);
  if (!found || size > found->size - (address - found->address))
    warp.fail(
        insn, lane, "expected ", size,
        " bytes inside of an allocation, but got global address ", address,
        found ? bsr::concatenate(", ", found->address + found->size - address,
                                 " bytes before an end")
              : "");
  warp.lastAllocation = found;
  uint64_t offset = address - found->address;
  uint8_t *written = &found->written[offset];
  if (access != Access::Write)
    for (unsigned i = 0; i < size; ++i)
      if (!written[i])
        warp.fail(insn, lane,
                  "expected bytes with a value, but got global address ",
                  address + i, ", which nobody wrote");
  unsigned shift = memory.granuleShift();
  for (uint64_t i = offset >> shift; i <= (offset + size - 1) >> shift; ++i)
    note(warp, insn, lane, address, found->shadow[i], access);
  if (access != Access::Read)
    std::memset(written, 1, size);
  return &found->bytes[offset];
}

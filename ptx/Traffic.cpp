// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What memory has to do for the accesses of a warp.

#include "Machine.h"
#include <algorithm>

using namespace ptx;

/// Says whether no two lanes use one bank for different words, most often in
/// the order of lanes.
static bool haveOwnBanks(const uint64_t *addresses, uint32_t lanes,
                         unsigned words) {
  uint32_t seen = 0;
  uint64_t last = ~uint64_t(0);
  for (; lanes; lanes &= lanes - 1) {
    uint64_t word = addresses[__builtin_ctz(lanes)] / 4;
    if (word == last)
      continue;
    last = word;
    // Of an address that is a multiple of its bytes, all words are in a row.
    uint32_t banks = ((1u << words) - 1) << word % 32;
    if (seen & banks)
      return false;
    seen |= banks;
  }
  return true;
}

/// 32 banks of 4 bytes. 32 lanes go together that access 4 bytes or less, 16
/// with 8 and 8 with 16; a wavefront gives each bank one word.
void ptx::countShared(Counts &counts, const uint64_t *addresses, uint32_t mask,
                      unsigned bytes) {
  unsigned together = bytes <= 4   ? 32
                      : bytes == 8 ? 16
                                   : 8,
           words = std::max(1u, bytes / 4);
  for (unsigned first = 0; first < 32; first += together) {
    uint32_t lanes =
        mask >> first & (together == 32 ? 0xffffffffu : (1u << together) - 1);
    if (haveOwnBanks(addresses + first, lanes, words)) {
      counts.sharedWavefronts += lanes != 0;
      counts.sharedIdeal += lanes != 0;
      continue;
    }
    uint32_t seen[32][32]; // by bank: the words
    uint8_t found[32] = {};
    unsigned most = 0;
    for (unsigned lane = first; lane < first + together; ++lane) {
      if (!(mask >> lane & 1))
        continue;
      for (unsigned i = 0; i < words; ++i) {
        uint32_t word = uint32_t(addresses[lane] / 4) + i, bank = word % 32;
        unsigned count = found[bank], j = 0;
        while (j < count && seen[bank][j] != word)
          ++j;
        if (j < count)
          continue;
        seen[bank][count] = word;
        found[bank] = uint8_t(count + 1);
        most = std::max(most, count + 1);
      }
    }
    counts.sharedWavefronts += most;
    counts.sharedIdeal += most != 0;
  }
}

/// The sectors of the addresses, each once, in their order; returns how many.
static unsigned findSectors(const uint64_t *addresses, uint32_t mask,
                            uint64_t *sectors) {
  unsigned count = 0;
  bool isSorted = true;
  for (; mask; mask &= mask - 1) {
    uint64_t sector = addresses[__builtin_ctz(mask)] / sectorBytes;
    if (count && sectors[count - 1] == sector)
      continue;
    isSorted &= !count || sectors[count - 1] < sector;
    sectors[count++] = sector;
  }
  if (isSorted)
    return count;
  std::sort(sectors, sectors + count);
  return unsigned(std::unique(sectors, sectors + count) - sectors);
}

static unsigned countLines(const uint64_t *sectors, unsigned count) {
  constexpr uint64_t lineSectors = 4;
  unsigned lines = count != 0;
  for (unsigned i = 1; i < count; ++i)
    lines += sectors[i] / lineSectors != sectors[i - 1] / lineSectors;
  return lines;
}

void ptx::countBuffers(Warp &warp, const uint64_t *sectors, unsigned count,
                       bool writes) {
  Cluster &cluster = *warp.block->cluster;
  if (!cluster.launch->options->countsBuffers)
    return;
  std::vector<BufferTraffic> &buffers = cluster.counts.buffers;
  const Allocation *found = warp.lastAllocation;
  for (unsigned i = 0; i < count; ++i) {
    uint64_t address = sectors[i] * sectorBytes;
    if (!found || address - found->address >= found->size)
      found = cluster.launch->memory->find(address);
    if (found->number >= buffers.size())
      buffers.resize(found->number + 1);
    BufferTraffic &traffic = buffers[found->number];
    ++(writes ? traffic.written : traffic.read);
  }
}

void ptx::countGlobal(Warp &warp, const uint64_t *addresses, uint32_t mask,
                      Access access, bool passesL1) {
  Counts &counts = warp.block->cluster->counts;
  uint64_t sectors[32];
  unsigned count = findSectors(addresses, mask, sectors);
  ++counts.globalRequests;
  counts.globalSectors += count;
  counts.globalLines += countLines(sectors, count);
  if (passesL1)
    counts.passedSectors += count;
  // Writes go through to L2.
  if (passesL1 || access != Access::Read)
    counts.l2Sectors += count;
  else
    for (unsigned i = 0; i < count; ++i) {
      uint64_t &cached = warp.cached[sectors[i] % warp.cached.size()];
      counts.l2Sectors += cached != sectors[i];
      cached = sectors[i];
    }
  countBuffers(warp, sectors, count, access != Access::Read);
}

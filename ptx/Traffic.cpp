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

/// Counts what differs of the addresses without their lowest `shift` bits.
static unsigned countDistinct(const uint64_t *addresses, uint32_t mask,
                              unsigned shift) {
  // Most often each lane's is that of the one before, or a larger one.
  unsigned steps = 0;
  uint64_t last = 0;
  uint32_t rest = mask;
  for (; rest; rest &= rest - 1) {
    uint64_t value = (addresses[__builtin_ctz(rest)] >> shift) + 1;
    if (value < last)
      break;
    steps += value != last;
    last = value;
  }
  if (!rest)
    return steps;
  uint64_t seen[32];
  unsigned count = 0;
  for (; mask; mask &= mask - 1) {
    uint64_t value = addresses[__builtin_ctz(mask)] >> shift;
    unsigned i = count;
    while (i && seen[i - 1] != value)
      --i;
    if (!i)
      seen[count++] = value;
  }
  return count;
}

void ptx::countGlobal(Counts &counts, const uint64_t *addresses, uint32_t mask,
                      unsigned) {
  ++counts.globalRequests;
  counts.globalSectors += countDistinct(addresses, mask, 5);
  counts.globalLines += countDistinct(addresses, mask, 7);
}

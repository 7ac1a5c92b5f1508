// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What memory has to do for the accesses of a warp.

#include "Machine.h"
#include <algorithm>

using namespace ptx;

/// 32 banks of 4 bytes. 32 lanes go together that access 4 bytes or less, 16
/// with 8 and 8 with 16; a wavefront gives each bank one word.
void ptx::countShared(Counts &counts, const uint64_t *addresses, uint32_t mask,
                      unsigned bytes) {
  unsigned together = bytes <= 4   ? 32
                      : bytes == 8 ? 16
                                   : 8,
           words = std::max(1u, bytes / 4);
  for (unsigned first = 0; first < 32; first += together) {
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

static unsigned countDistinct(const uint64_t *addresses, uint32_t mask,
                              unsigned shift) {
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

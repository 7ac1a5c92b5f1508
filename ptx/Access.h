// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Accesses of shared memory, of which kernels have the most: what is usual is
// inlined.

#ifndef PTX_ACCESS_H
#define PTX_ACCESS_H

#include "Machine.h"
#include <algorithm>

namespace ptx {

// The slow way of blockOf(), and its errors.
Block &otherBlockOf(Warp &warp, const Insn &insn, unsigned lane,
                    uint64_t &address, unsigned size);

/// The block that has a shared address, which becomes the one in it.
inline Block &blockOf(Warp &warp, const Insn &insn, unsigned lane,
                      uint64_t &address, unsigned size) {
  uint32_t end = warp.block->shared.end();
  uint64_t inside = address & ((1u << rankShift) - 1);
  uint64_t rank = address >> rankShift;
  if (inside >= sharedBase && inside < end && size <= end - inside &&
      (rank == 0 || rank == warp.block->rank + 1)) {
    address = inside;
    return *warp.block;
  }
  return otherBlockOf(warp, insn, lane, address, size);
}

inline bool Shared::isAfterWrite(const uint32_t *clock, unsigned id,
                                 unsigned lane, const Cell &cell) {
  unsigned writer = cell.writer / 32;
  if (writer == id)
    return cell.clock < clock[id] || cell.writer % 32 == lane;
  return clock[writer] >= cell.clock;
}

inline uint32_t &Shared::addReader(size_t index, size_t warp) {
  if (!(held.cells.data()[index].flags & HasReaders)) {
    for (size_t v = 0; v < numReaders; ++v)
      readerOf(index, v) = 0;
    held.cells.data()[index].flags |= HasReaders;
  }
  return readerOf(index, warp);
}

inline bool Shared::isReadable(const uint32_t *clock, unsigned id,
                               unsigned lane, const Cell &cell) {
  return (cell.flags & (Written | Copying | Arriving | IsBarrier | ByMany)) ==
             Written &&
         isAfterWrite(clock, id, lane, cell);
}

inline void Shared::read(Warp &warp, const Insn &insn, unsigned lane,
                         uint32_t address, unsigned size) {
  const uint32_t *clock = warp.clock.data();
  unsigned id = warp.id;
  uint32_t now = clock[id], mine = now * 64 + lane;
  size_t end = (address - first + size - 1) >> shift;
  for (size_t i = (address - first) >> shift; i <= end; ++i) {
    if (!isReadable(clock, id, lane, held.cells.data()[i]))
      checkRead(warp, insn, lane, i);
    uint32_t &reader = addReader(i, id);
    reader = reader / 64 == now && reader != mine ? now * 64 + anyLane : mine;
  }
}

inline bool Shared::readTogether(Warp &warp, uint32_t address, unsigned size) {
  const uint32_t *clock = warp.clock.data();
  unsigned id = warp.id;
  size_t end = (address - first + size - 1) >> shift;
  for (size_t i = (address - first) >> shift; i <= end; ++i) {
    if (!isReadable(clock, id, anyLane, held.cells.data()[i]))
      return false;
    addReader(i, id) = clock[id] * 64 + anyLane;
  }
  return true;
}

} // namespace ptx

#endif // PTX_ACCESS_H

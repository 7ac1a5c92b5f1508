// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Races, bytes without a value, and copies without a wait, in shared memory.

#include "Access.h"
#include <algorithm>
#include <mutex>

using namespace ptx;

struct Shared::Pool {
  std::mutex mutex;
  std::vector<Storage> unused;
};

Shared::Pool &Shared::pool() {
  static Pool pool;
  return pool;
}

Shared::~Shared() {
  if (held.cells.empty())
    return;
  std::lock_guard<std::mutex> lock(pool().mutex);
  pool().unused.push_back(std::move(held));
}

void Shared::reset(uint32_t end, unsigned granuleShift, unsigned warps) {
  first = sharedBase;
  last = end;
  shift = granuleShift;
  numWarps = warps;
  if (held.cells.empty()) {
    std::lock_guard<std::mutex> lock(pool().mutex);
    if (!pool().unused.empty()) {
      held = std::move(pool().unused.back());
      pool().unused.pop_back();
    }
  }
  held.bytes.assign(end - first, 0xff);
  held.cells.assign(((end - first) >> shift) + 1, Cell());
  // Of one cell the lines of all warps lie in different sets of a cache.
  readerStride = (held.cells.size() / 16 | 1) * 16 + 32;
  if (held.readers.size() < readerStride * warps)
    held.readers.resize(readerStride * warps);
}

/// The name of the thread `writer` in its block.
static std::string threadOf(Warp &warp, unsigned writer) {
  Cluster &cluster = *warp.block->cluster;
  size_t perBlock = cluster.blocks[0].warps.size();
  unsigned id = writer / 32;
  if (id == cluster.numWarps())
    return "an asynchronous copy";
  Block &block = cluster.blocks[id / perBlock];
  std::string name = "thread " + block.warps[id % perBlock].thread(writer % 32);
  if (&block != warp.block)
    name += " of block " + std::to_string(block.rank) + " of the cluster";
  return name;
}

void Shared::explainRead(Warp &warp, const Insn &insn, unsigned lane,
                         size_t index) {
  const Cell &cell = held.cells[index];
  uint32_t address = first + uint32_t(index << shift);
  unsigned shown = lane == anyLane ? 0 : lane;
  if (cell.flags & IsBarrier)
    warp.fail(insn, shown,
              "expected bytes, but got an mbarrier at shared address ",
              address);
  if (cell.flags & Copying)
    warp.fail(
        insn, shown,
        "expected bytes that have arrived, but got those at shared address ",
        address, ", for whose cp.async ", threadOf(warp, cell.writer),
        " has not waited");
  if (cell.flags & Arriving)
    warp.fail(
        insn, shown,
        "expected bytes that have arrived, but got those at shared address ",
        address, ", whose bulk copy has not completed its mbarrier");
  if (!(cell.flags & Written))
    warp.fail(insn, shown,
              "expected bytes with a value, but got shared address ", address,
              ", which was never written");
  warp.fail(insn, shown,
            "expected a barrier between a write and a read of shared address ",
            address, ", but got a race with ", threadOf(warp, cell.writer));
}

void Shared::checkWrite(Warp &warp, const Insn &insn, unsigned lane,
                        size_t index) {
  Cell &cell = held.cells[index];
  uint32_t address = first + uint32_t(index << shift);
  if (cell.flags & IsBarrier)
    warp.fail(insn, lane,
              "expected bytes, but got an mbarrier at shared address ",
              address);
  if (cell.flags & Copying)
    warp.fail(
        insn, lane,
        "expected bytes that no copy writes, but got those at shared address ",
        address, ", for whose cp.async ", threadOf(warp, cell.writer),
        " has not waited");
  if (cell.flags & Arriving)
    warp.fail(
        insn, lane,
        "expected bytes that no copy writes, but got those at shared address ",
        address, ", whose bulk copy has not completed its mbarrier");
  if (cell.asyncReaders)
    warp.fail(
        insn, lane,
        "expected bytes that nothing reads, but got shared address ", address,
        ", which an asynchronous operation reads that was not waited for");
  if ((cell.flags & Written) && !isAfterWrite(warp, lane, cell))
    warp.fail(insn, lane,
              "expected a barrier between two writes of shared address ",
              address, ", but got a race with ", threadOf(warp, cell.writer));
  if (!(cell.flags & HasReaders))
    return;
  for (unsigned v = 0; v < numWarps; ++v) {
    uint32_t &reader = readerOf(index, v);
    if (!reader)
      continue;
    bool after = v == warp.id ? reader / 64 < warp.now() || reader % 64 == lane
                              : warp.clock[v] >= reader / 64;
    if (!after)
      warp.fail(
          insn, lane,
          "expected a barrier between a read and a write of shared address ",
          address, ", but got a race with ",
          threadOf(warp, v * 32 + (reader % 64 == anyLane ? 0 : reader % 64)));
    reader = 0;
  }
  cell.flags &= uint8_t(~HasReaders);
}

void Shared::write(Warp &warp, const Insn &insn, unsigned lane,
                   uint32_t address, unsigned size) {
  forCells(address, size, [&](size_t i) {
    checkWrite(warp, insn, lane, i);
    Cell &cell = held.cells[i];
    cell.flags = Written;
    cell.clock = warp.now();
    cell.writer = uint16_t(warp.id * 32 + lane);
  });
}

void Shared::atomic(Warp &warp, const Insn &insn, unsigned lane,
                    uint32_t address, unsigned size) {
  forCells(address, size, [&](size_t i) {
    Cell &cell = held.cells[i];
    if (!(cell.flags & Written))
      explainRead(warp, insn, lane, i);
    // Two atomic operations are no race.
    if (!(cell.flags & ByAtomic) || (cell.flags & HasReaders))
      checkWrite(warp, insn, lane, i);
    cell.flags = Written | ByAtomic;
    cell.clock = warp.now();
    cell.writer = uint16_t(warp.id * 32 + lane);
  });
}

void Shared::beginCopy(Warp &warp, const Insn &insn, unsigned lane,
                       uint32_t address, unsigned size) {
  write(warp, insn, lane, address, size);
  forCells(address, size, [&](size_t i) { held.cells[i].flags |= Copying; });
}

void Shared::endCopy(Warp &warp, unsigned lane, uint32_t address,
                     unsigned size) {
  forCells(address, size, [&](size_t i) {
    Cell &cell = held.cells[i];
    cell.flags = Written;
    cell.clock = warp.now();
    cell.writer = uint16_t(warp.id * 32 + lane);
  });
}

void Shared::endCopyAt(uint32_t address, unsigned size, uint32_t clock) {
  forCells(address, size, [&](size_t i) {
    held.cells[i].flags = Written;
    held.cells[i].clock = clock;
    held.cells[i].writer = uint16_t(numWarps * 32);
  });
}

void Shared::beginBulk(Warp &warp, const Insn &insn, unsigned lane,
                       uint32_t address, unsigned size) {
  write(warp, insn, lane, address, size);
  forCells(address, size, [&](size_t i) { held.cells[i].flags |= Arriving; });
}

void Shared::endBulk(uint32_t address, unsigned size, uint32_t clock) {
  forCells(address, size, [&](size_t i) {
    held.cells[i].flags = Written | ByAsync;
    held.cells[i].clock = clock;
    held.cells[i].writer = uint16_t(numWarps * 32);
  });
}

void Shared::beginAsyncRead(Warp &warp, const Insn &insn, unsigned lane,
                            uint32_t address, unsigned size) {
  forCells(address, size, [&](size_t i) {
    Cell &cell = held.cells[i];
    if ((cell.flags & (Written | Copying | Arriving | IsBarrier)) != Written ||
        !isAfterWrite(warp, lane, cell))
      explainRead(warp, insn, lane, i);
    if (!(cell.flags & ByAsync) && warp.fenced[cell.writer / 32] < cell.clock)
      warp.fail(insn, lane == anyLane ? 0 : lane,
                "expected fence.proxy.async between a write of shared address ",
                first + (i << shift),
                " and an asynchronous read, but got none after the write of ",
                threadOf(warp, cell.writer));
    if (cell.asyncReaders < 255)
      ++cell.asyncReaders;
  });
}

void Shared::endAsyncRead(Warp &warp, unsigned lane, uint32_t address,
                          unsigned size) {
  forCells(address, size, [&](size_t i) {
    Cell &cell = held.cells[i];
    if (cell.asyncReaders && cell.asyncReaders < 255)
      --cell.asyncReaders;
    addReader(i, warp.id) = warp.now() * 64 + lane;
  });
}

void Shared::beginBarrier(Warp &warp, const Insn &insn, unsigned lane,
                          uint32_t address) {
  forCells(address, 8, [&](size_t i) {
    if (held.cells[i].flags & IsBarrier)
      warp.fail(
          insn, lane,
          "expected bytes that are no mbarrier, but got one at shared address ",
          address);
  });
  write(warp, insn, lane, address, 8);
  forCells(address, 8, [&](size_t i) { held.cells[i].flags |= IsBarrier; });
}

void Shared::useBarrier(Warp &warp, const Insn &insn, unsigned lane,
                        uint32_t address) {
  forCells(address, 8, [&](size_t i) {
    const Cell &cell = held.cells[i];
    if (!(cell.flags & IsBarrier))
      warp.fail(insn, lane, "expected an mbarrier at shared address ", address,
                ", but got bytes without mbarrier.init");
    if (!isAfterWrite(warp, lane, cell))
      warp.fail(insn, lane,
                "expected a barrier between mbarrier.init and a use at shared "
                "address ",
                address, ", but got a race with ", threadOf(warp, cell.writer));
  });
}

void Shared::endBarrier(uint32_t address) {
  forCells(address, 8, [&](size_t i) { held.cells[i].flags = 0; });
}

Block &ptx::otherBlockOf(Warp &warp, const Insn &insn, unsigned lane,
                         uint64_t &address, unsigned size) {
  Cluster &cluster = *warp.block->cluster;
  uint64_t rank = address >> rankShift;
  uint64_t inside = address & ((1u << rankShift) - 1);
  Block *block = warp.block;
  if (rank && rank <= cluster.blocks.size())
    block = &cluster.blocks[rank - 1];
  else if (rank)
    inside = 0;
  uint32_t end = block->shared.end();
  if (inside < sharedBase || inside >= end || size > end - inside)
    warp.fail(insn, lane, "expected ", size,
              " bytes of shared memory, which is ", sharedBase, " to ", end,
              ", but got address ", address);
  if (block != warp.block) {
    bool ended = true;
    for (const Warp &other : block->warps)
      ended &= other.status == Status::Done;
    if (ended)
      warp.fail(insn, lane,
                "expected shared memory of a block that runs, but got block ",
                block->rank, " of the cluster, which has ended");
  }
  address = inside;
  return *block;
}

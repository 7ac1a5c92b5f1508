// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Races, bytes without a value, and copies without a wait, in shared memory.

#include "Access.h"
#include <algorithm>
#include <cstring>
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

void Shared::reset(uint32_t end, unsigned granuleShift, unsigned warps,
                   unsigned groups) {
  first = sharedBase;
  last = end;
  shift = granuleShift;
  numWarps = warps;
  numReaders = warps + groups;
  others.clear();
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
  if (held.readers.size() < readerStride * numReaders)
    held.readers.resize(readerStride * numReaders);
}

int Shared::findRace(const Warp &warp, unsigned lane, size_t index) const {
  const Cell &cell = held.cells[index];
  auto isAfter = [&](const Cell &written) {
    return isAfterWrite(warp.clock.data(), warp.id, lane, written);
  };
  if (!isAfter(cell))
    return cell.writer;
  if (cell.flags & ByMany)
    for (const Cell &other : others.at(index))
      if (!isAfter(other))
        return other.writer;
  return -1;
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

void Shared::checkRead(Warp &warp, const Insn &insn, unsigned lane,
                       size_t index) {
  const Cell &cell = held.cells[index];
  uint32_t address = first + uint32_t(index << shift);
  unsigned shown = lane < 32 ? lane : 0;
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
  if (int writer = findRace(warp, lane, index); writer >= 0)
    warp.fail(
        insn, shown,
        "expected a barrier between a write and a read of shared address ",
        address, ", but got a race with ", threadOf(warp, unsigned(writer)));
}

bool Shared::checkWrite(Warp &warp, const Insn &insn, unsigned lane,
                        size_t index, bool isSame) {
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
  int writer = cell.flags & Written ? findRace(warp, lane, index) : -1;
  if (writer >= 0 && !isSame)
    warp.fail(
        insn, lane, "expected a barrier between two writes of shared address ",
        address, ", but got a race with ", threadOf(warp, unsigned(writer)));
  if (!(cell.flags & HasReaders))
    return writer >= 0;
  for (unsigned v = 0; v < numReaders; ++v) {
    uint32_t &reader = readerOf(index, v);
    if (!reader)
      continue;
    unsigned by = reader % 64;
    // A warp stores matrices when all of its lanes have loaded theirs.
    bool after = v == warp.id
                     ? reader / 64 < warp.now() || by == lane ||
                           (by == wholeWarp && insn.kind == Class::Matrix)
                 : v < numWarps ? warp.clock[v] >= reader / 64
                                : warp.clock[v + 1] >= reader / 64;
    if (!after)
      warp.fail(
          insn, lane,
          "expected a barrier between a read and a write of shared address ",
          address, ", but got a race with ",
          v < numWarps ? threadOf(warp, v * 32 + (by < 32 ? by : 0))
                       : "wgmma that the warp has not waited for");
    reader = 0;
  }
  cell.flags &= uint8_t(~HasReaders);
  return writer >= 0;
}

void Shared::noteOther(size_t index) {
  const Cell &cell = held.cells[index];
  std::vector<Cell> &all = others[index];
  if (!(cell.flags & ByMany))
    all.clear();
  for (Cell &other : all)
    if (other.writer == cell.writer) {
      other.clock = cell.clock;
      return;
    }
  all.push_back(cell);
}

void Shared::write(Warp &warp, const Insn &insn, unsigned lane,
                   uint32_t address, unsigned size, const uint8_t *values) {
  forCells(address, size, [&](size_t i) {
    uint32_t at = first + uint32_t(i << shift), bytes = 1u << shift;
    // Where a write has a part of a cell only, its bytes say nothing of it.
    bool isSame = values && at >= address && at + bytes <= address + size &&
                  !std::memcmp(this->at(at), values + (at - address), bytes);
    bool isSecond = checkWrite(warp, insn, lane, i, isSame);
    Cell &cell = held.cells[i];
    if (isSecond)
      noteOther(i);
    cell.flags = isSecond ? Written | ByMany : Written;
    cell.clock = warp.now();
    cell.writer = uint16_t(warp.id * 32 + lane);
  });
}

void Shared::atomic(Warp &warp, const Insn &insn, unsigned lane,
                    uint32_t address, unsigned size) {
  forCells(address, size, [&](size_t i) {
    Cell &cell = held.cells[i];
    if (!(cell.flags & Written))
      checkRead(warp, insn, lane, i);
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
    if (!isReadable(warp.clock.data(), warp.id, lane, cell))
      checkRead(warp, insn, lane, i);
    auto checkFence = [&](const Cell &written) {
      if (warp.fenced[written.writer / 32] >= written.clock)
        return;
      warp.fail(insn, lane < 32 ? lane : 0,
                "expected fence.proxy.async between a write of shared address ",
                first + (i << shift),
                " and an asynchronous read, but got none after the write of ",
                threadOf(warp, written.writer));
    };
    if (!(cell.flags & ByAsync))
      checkFence(cell);
    if (cell.flags & ByMany)
      std::for_each(others[i].begin(), others[i].end(), checkFence);
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

void Shared::endGroupRead(unsigned group, uint32_t address, unsigned size,
                          uint32_t time) {
  forCells(address, size, [&](size_t i) {
    Cell &cell = held.cells[i];
    if (cell.asyncReaders && cell.asyncReaders < 255)
      --cell.asyncReaders;
    addReader(i, numWarps + group) = time * 64 + anyLane;
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
    if (findRace(warp, lane, i) >= 0 &&
        warp.inits[cell.writer / 32] < cell.clock)
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

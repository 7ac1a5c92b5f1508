// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Warps, blocks and clusters while they run.

#ifndef PTX_MACHINE_H
#define PTX_MACHINE_H

#include "Program.h"
#include "Shared.h"
#include "Windows.h"
#include "support/Error.h"
#include <cstring>
#include <deque>
#include <map>
#include <unordered_map>

namespace ptx {

struct Block;
struct Cluster;

/// Lanes of a warp at the same instruction.
struct Group {
  uint32_t pc, mask;
  bool waits = false;  ///< for the other lanes of a member mask
  uint64_t polled = 0; ///< Cluster::version when a wait failed; 0: none did
};

/// How a warp stands.
enum class Status : uint8_t {
  Running,
  AtBarrier,
  AtClusterBarrier,
  AtRegisters, ///< that others are to give
  Polling,
  Done
};

/// A cp.async that no wait has completed.
struct AsyncCopy {
  uint64_t from;
  uint32_t to;
  uint32_t group;  ///< of its lane
  uint32_t serial; ///< in the warp
  uint8_t lane, bytes, valid;
};

/// What is known of wgmma instructions that no wait has completed.
struct WgmmaState {
  struct Use {
    Block *block;
    uint32_t address, bytes;
  };
  struct Pending {
    uint64_t group;
    uint64_t number; ///< of the products that the warp has issued
    std::vector<Use> reads;
    std::vector<uint32_t> accumulators;
  };
  std::vector<Pending> pending;
  uint64_t group = 0, issued = 0;
  bool fenced = false;
  std::vector<uint8_t> unfenced; ///< by slot
  std::vector<uint32_t> busy;    ///< by slot: products that write it
};

/// A bulk copy from shared memory that no wait has completed.
struct BulkStore {
  Block *block;
  const Insn *insn;
  uint32_t address, bytes, group;
  uint8_t lane;
};

struct Warp {
  const Kernel *kernel = nullptr;
  Block *block = nullptr;
  unsigned index = 0; ///< in the block
  unsigned id = 0;    ///< in the cluster
  uint32_t lanesOfBlock = 0, exited = 0;
  Status status = Status::Running;
  std::vector<Group> groups;

  // Registers: 32 lanes a slot; registers of 64 bits have two slots. The lanes
  // of `initialised` have a value.
  std::unique_ptr<uint32_t[]> storage;
  uint32_t *file = nullptr;
  std::vector<uint32_t> initialised, predicates, predicatesInitialised;
  std::vector<uint8_t> local, localWritten;

  // What happened before: clock[v] is the time of warp v whose accesses this
  // one comes after; fenced[v] the same for accesses through the asynchronous
  // proxy, inits[v] for mbarrier.init. Behind the warps comes an entry of bulk
  // copies, which have no warp, and one a warpgroup, whose times are its
  // products by wgmma.
  std::vector<uint32_t> clock, fenced, inits;

  std::vector<AsyncCopy> copies;
  uint32_t copyGroup[32] = {}, copySerial = 0;
  std::vector<BulkStore> bulkStores;
  uint32_t bulkGroup[32] = {};
  WgmmaState wgmma;
  Allocation *lastAllocation = nullptr;
  uint32_t barrierId = 0;
  bool clusterArrived = false;
  bool polledNow = false; ///< a wait failed
  bool staysNow = false;  ///< at that wait, until it does not fail
  /// Of a thread, 0 if unknown; those that it waits for; setmaxnregs.
  unsigned registers = 0, wantedRegisters = 0, registerChanges = 0;
  uint64_t clusterPhase = 0;
  uint64_t executed = 0; ///< instructions
  /// The sectors that L1 may have of what it read: 4 KiB, each at a place of
  /// its last bits.
  std::array<uint64_t, 128> cached;

  template <typename T>
  auto *lanes(uint32_t slot) {
    using Storage = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    return reinterpret_cast<Storage *>(file + size_t(slot) * 32);
  }
  uint64_t addressOf(const Insn &insn, unsigned index, unsigned lane) {
    return insn.narrow >> index & 1 ? lanes<uint32_t>(insn.op[index])[lane]
                                    : lanes<uint64_t>(insn.op[index])[lane];
  }
  const uint32_t *list(const Insn &insn) const {
    return kernel->slots.data() + insn.list;
  }
  /// The lanes of `mask` where a predicate holds.
  uint32_t predicate(const Insn &insn, uint32_t slot, uint32_t mask) {
    if (uint32_t bad = mask & ~predicatesInitialised[slot])
      failUninitialised(insn, bad);
    return predicates[slot] & mask;
  }
  void setPredicate(uint32_t slot, uint32_t mask, uint32_t value) {
    predicates[slot] = (predicates[slot] & ~mask) | (value & mask);
    predicatesInitialised[slot] |= mask;
  }
  uint32_t now() const { return clock.data()[id]; }

  /// Runs until it ends, waits, or has executed `slice` instructions.
  void run(uint64_t slice);
  /// The warp has released what it did so far: later accesses are later.
  void tick();
  /// Everything that `from` came after happened before this warp goes on.
  void acquire(const std::vector<uint32_t> &from,
               const std::vector<uint32_t> &fencedFrom);

  /// Throws `parts` as a sentence, with the thread and the instruction.
  template <typename... Parts>
  [[noreturn]] void fail(const Insn &insn, unsigned lane,
                         const Parts &...parts) {
    sparse_opt::fail(sparse_opt::concatenate(parts...), where(insn, lane));
  }
  [[noreturn]] void failUninitialised(const Insn &insn, uint32_t lanes);
  std::string where(const Insn &insn, unsigned lane);
  std::string thread(unsigned lane) const; ///< (x,y,z) in the block

private:
  void step();
  bool converge(const Insn &insn, Group &group, uint32_t mask);
  void checkUses(const Insn &insn, uint32_t mask);
  void noteAccumulators(const Insn &insn);
  void choose(const Insn &insn, size_t from, uint32_t mask);
  int pick();
  void merge();
};

/// Memory is read and written in sectors.
constexpr uint64_t sectorBytes = 32;

/// A barrier of a block, by its number.
struct Barrier {
  uint32_t expected = 0, arrived = 0; ///< threads
  std::vector<Warp *> waiting;
  std::vector<uint32_t> clock, fenced;
};

/// An mbarrier object.
struct Mbarrier {
  uint32_t count = 0, pending = 0;
  int64_t bytes = 0; ///< expected minus complete
  uint64_t phase = 0;
  unsigned maker = 0; ///< the warp that initialised it
  bool published =
      false; ///< to the asynchronous proxy, by a fence of the maker
  std::vector<uint32_t> clock, fenced; ///< of arrivals in this phase
  std::vector<uint32_t> doneClock, doneFenced;
};

/// A wgmma that a warp of a group has issued: the others issue the same.
struct IssuedWgmma {
  const Insn *insn;
  uint64_t a, b;
};

struct Block {
  Cluster *cluster = nullptr;
  unsigned rank = 0;
  Dim index;
  Shared shared;
  std::vector<Warp> warps;
  Barrier barriers[16];
  std::unordered_map<uint32_t, Mbarrier> mbarriers;
  std::vector<std::vector<IssuedWgmma>> wgmma; ///< by groups of 4 warps
  /// Registers that warps have given, and the setmaxnregs of groups of 4 warps.
  int64_t freeRegisters = 0;
  std::vector<std::vector<const Insn *>> registerChanges;
};

/// A bulk copy into shared memory that has not arrived.
struct BulkCopy {
  Warp *warp; ///< that issued it
  const Insn *insn;
  unsigned lane;
  Block *block;
  uint32_t to, bytes, barrier;
  std::vector<uint8_t> data;
  std::vector<uint32_t> places; ///< the shared address of each 16 bytes
  /// No bytes of its own, but an arrival when the copies of the lane before
  /// `serial` are there: cp.async.mbarrier.arrive.
  bool arrives;
  uint32_t serial;
};

struct Launch {
  const Program *program;
  const Kernel *kernel;
  const LaunchOptions *options;
  const Chip *chip;
  Memory *memory;
  Dim grid, block, cluster;
  std::vector<uint64_t> addresses; ///< of Kernel::addresses
  uint32_t sharedEnd = 0, dynamicBegin = 0;
  unsigned registers = 0; ///< of a thread; 0 if unknown
  bool isSerial = false;  ///< one block after the other, in one thread
};

struct Cluster {
  const Launch *launch = nullptr;
  uint64_t index = 0;
  std::vector<Block> blocks;
  std::deque<BulkCopy> bulkCopies;
  Counts counts;
  uint64_t version = 1; ///< counts what a waiting warp may wait for
  uint64_t executed = 0;
  uint32_t arrivals = 0; ///< the time of bulk copies, which have no warp
  uint32_t clusterArrived = 0;
  uint64_t phase = 0;     ///< of the cluster's barrier
  unsigned numGroups = 0; ///< warpgroups of a kernel with wgmma
  std::vector<uint32_t> clock, fenced, inits, doneClock, doneFenced, doneInits;

  explicit Cluster(const Launch &launch);
  void count(const Insn &insn) {
    ++counts.instructions[unsigned(insn.kind)];
    ++counts.units[insn.unit];
  }
  void start(uint64_t number);
  void run();
  unsigned numWarps() const {
    return unsigned(blocks.size() * blocks[0].warps.size());
  }
  unsigned numClocks() const { return numWarps() + 1 + numGroups; }
};

// Wgmma.cpp: all warps of a group have issued the same.
void checkIssued(Cluster &cluster);
// Registers.cpp: of a thread, 0 where neither the kernel nor an option says it.
unsigned registersAtLaunch(const Launch &launch);
void checkRegisterChanges(Cluster &cluster); ///< all of a group made the same
[[noreturn]] void failForRegisters(Warp &warp, const Insn &insn, unsigned lane);
// Barriers.cpp
[[noreturn]] void failDeadlock(Cluster &cluster);
// BulkCopies.cpp
void land(Cluster &cluster, BulkCopy &copy);
// AsyncCopies.cpp: ends copies of a lane at a time of those without a warp.
void landCopies(Warp &warp, unsigned lane, uint32_t serial, uint32_t now);
void checkCopies(Cluster &cluster); ///< all of them were waited for
// Global.cpp: returns where the bytes lie after every check.
enum class Access : uint8_t { Read, Write, Atomic };
uint8_t *accessGlobal(Warp &warp, const Insn &insn, unsigned lane,
                      uint64_t address, unsigned bytes, Access access);
/// The same for the lanes of `mask`, which read.
void readGlobal(Warp &warp, const Insn &insn, uint32_t mask,
                const uint64_t *addresses, unsigned bytes,
                const uint8_t **from);
/// Nothing has written what the lanes of `mask` read, in this launch.
void checkConstant(Warp &warp, const Insn &insn, uint32_t mask,
                   const uint64_t *addresses, unsigned bytes);
// Traffic.cpp
void countShared(Counts &counts, const uint64_t *addresses, uint32_t mask,
                 unsigned bytes);
/// `passesL1`: what is read is copied to shared memory alone.
void countGlobal(Warp &warp, const uint64_t *addresses, uint32_t mask,
                 Access access, bool passesL1 = false);
/// Counts sectors of allocations, which are read or written.
void countBuffers(Warp &warp, const uint64_t *sectors, unsigned count,
                  bool writes);

/// Calls `body` for each lane of `mask`.
template <typename Body>
inline void forLanes(uint32_t mask, Body body) {
  if (mask == 0xffffffffu)
    for (unsigned lane = 0; lane < 32; ++lane)
      body(lane);
  else
    for (; mask; mask &= mask - 1)
      body(unsigned(__builtin_ctz(mask)));
}

} // namespace ptx

#endif // PTX_MACHINE_H

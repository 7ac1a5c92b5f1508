// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The blocks of a cluster: how they begin, and which warp runs next.

#include "Machine.h"
#include <algorithm>

using namespace ptx;

/// What addresses in shared memory have of their block above their offset.
static uint64_t sharedBits(const Cluster &cluster, const Block &block) {
  return cluster.blocks.size() > 1 ? (uint64_t(block.rank) + 1) << rankShift
                                   : 0;
}

static uint64_t valueOf(Special special, const Warp &warp, unsigned lane) {
  const Block &block = *warp.block;
  const Cluster &cluster = *block.cluster;
  const Launch &launch = *cluster.launch;
  const Dim &extent = launch.block, &size = launch.cluster, &at = block.index;
  uint64_t thread = uint64_t(warp.index) * 32 + lane;
  uint32_t bit = 1u << lane;
  switch (special) {
  case Special::TidX:
    return thread % extent.x;
  case Special::TidY:
    return thread / extent.x % extent.y;
  case Special::TidZ:
    return thread / extent.x / extent.y;
  case Special::NtidX:
    return extent.x;
  case Special::NtidY:
    return extent.y;
  case Special::NtidZ:
    return extent.z;
  case Special::CtaidX:
    return at.x;
  case Special::CtaidY:
    return at.y;
  case Special::CtaidZ:
    return at.z;
  case Special::NctaidX:
    return launch.grid.x;
  case Special::NctaidY:
    return launch.grid.y;
  case Special::NctaidZ:
    return launch.grid.z;
  case Special::LaneId:
    return lane;
  case Special::WarpId:
    return warp.index;
  case Special::NWarpId:
    return block.warps.size();
  case Special::LanemaskEq:
    return bit;
  case Special::LanemaskLt:
    return bit - 1;
  case Special::LanemaskLe:
    return bit | (bit - 1);
  case Special::LanemaskGt:
    return ~(bit | (bit - 1));
  case Special::LanemaskGe:
    return ~(bit - 1);
  case Special::ClusterCtarank:
    return block.rank;
  case Special::ClusterNctarank:
    return size.count();
  case Special::ClusterCtaidX:
    return at.x % size.x;
  case Special::ClusterCtaidY:
    return at.y % size.y;
  case Special::ClusterCtaidZ:
    return at.z % size.z;
  case Special::ClusterNctaidX:
    return size.x;
  case Special::ClusterNctaidY:
    return size.y;
  case Special::ClusterNctaidZ:
    return size.z;
  case Special::ClusteridX:
    return at.x / size.x;
  case Special::ClusteridY:
    return at.y / size.y;
  case Special::ClusteridZ:
    return at.z / size.z;
  case Special::NclusteridX:
    return launch.grid.x / size.x;
  case Special::NclusteridY:
    return launch.grid.y / size.y;
  case Special::NclusteridZ:
    return launch.grid.z / size.z;
  case Special::DynamicSmemSize:
    return launch.options->dynamicShared;
  case Special::TotalSmemSize:
    return launch.sharedEnd - launch.options->sharedOffset - sharedBase;
  // Clocks are the number of the cluster: the same in every run.
  case Special::Clock:
  case Special::Clock64:
  case Special::GlobalTimer:
    return cluster.index;
  case Special::SmId:
    return 0;
  case Special::NSmId:
    return 1;
  case Special::DynamicShared:
  case Special::DynamicShared32:
    return launch.dynamicBegin | sharedBits(cluster, *warp.block);
  }
  return 0;
}

Cluster::Cluster(const Launch &launch)
    : launch(&launch), blocks(launch.cluster.count()) {
  const Kernel &kernel = *launch.kernel;
  unsigned threads = unsigned(launch.block.count());
  const std::vector<bool> &marked = kernel.accumulators;
  if (std::find(marked.begin(), marked.end(), true) != marked.end())
    numGroups = unsigned(blocks.size()) * ((threads + 127) / 128);
  for (unsigned rank = 0; rank < blocks.size(); ++rank) {
    Block &block = blocks[rank];
    block.cluster = this;
    block.rank = rank;
    block.warps.resize((threads + 31) / 32);
    for (unsigned i = 0; i < block.warps.size(); ++i) {
      Warp &warp = block.warps[i];
      warp.kernel = &kernel;
      warp.block = &block;
      warp.index = i;
      warp.id = rank * unsigned(block.warps.size()) + i;
      unsigned lanes = std::min(32u, threads - 32 * i);
      warp.lanesOfBlock = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
      warp.storage.reset(new uint32_t[(size_t(kernel.numSlots) + 2) * 32 + 16]);
      auto raw = reinterpret_cast<uintptr_t>(warp.storage.get());
      warp.file = reinterpret_cast<uint32_t *>((raw + 63) & ~uintptr_t(63));
      std::memset(warp.file, 0xa5, (size_t(kernel.numSlots) + 2) * 32 * 4);
      auto fill = [&](uint32_t slot, bool wide, uint64_t value) {
        for (unsigned lane = 0; lane < 32; ++lane)
          if (wide)
            warp.lanes<uint64_t>(slot)[lane] = value;
          else
            warp.lanes<uint32_t>(slot)[lane] = uint32_t(value);
      };
      for (const Constant &constant : kernel.constants)
        fill(constant.slot, constant.wide,
             constant.isShared
                 ? (constant.value + launch.options->sharedOffset) |
                       sharedBits(*this, block)
                 : constant.value);
      for (size_t j = 0; j < kernel.addresses.size(); ++j)
        fill(kernel.addresses[j].first, true, launch.addresses[j]);
      warp.local.resize(size_t(kernel.localBytes) * 32);
    }
  }
}

void Cluster::start(uint64_t number) {
  const Kernel &kernel = *launch->kernel;
  const Dim &size = launch->cluster;
  Dim clusters{launch->grid.x / size.x, launch->grid.y / size.y,
               launch->grid.z / size.z};
  index = number;
  Dim first{unsigned(number % clusters.x) * size.x,
            unsigned(number / clusters.x % clusters.y) * size.y,
            unsigned(number / clusters.x / clusters.y) * size.z};
  bulkCopies.clear();
  version = 1;
  executed = 0;
  arrivals = 0;
  clusterArrived = 0;
  unsigned all = numWarps(), clocks = numClocks();
  for (auto *times :
       {&clock, &fenced, &inits, &doneClock, &doneFenced, &doneInits})
    times->assign(clocks, 0);
  phase = 0;
  for (Block &block : blocks) {
    block.index = {first.x + block.rank % size.x,
                   first.y + block.rank / size.x % size.y,
                   first.z + block.rank / size.x / size.y};
    block.shared.reset(launch->sharedEnd, kernel.sharedShift, all, numGroups);
    block.mbarriers.clear();
    block.wgmma.assign((block.warps.size() + 3) / 4, {});
    block.registerChanges.assign((block.warps.size() + 3) / 4, {});
    block.freeRegisters = 0;
    for (Barrier &barrier : block.barriers)
      barrier = Barrier();
    for (Warp &warp : block.warps) {
      warp.status = Status::Running;
      warp.groups.assign(1, Group{0, warp.lanesOfBlock});
      warp.exited = 0;
      warp.initialised.assign(kernel.numSlots, 0);
      warp.predicates.assign(kernel.numPredicates, 0);
      warp.predicatesInitialised.assign(kernel.numPredicates, 0);
      warp.localWritten.assign(warp.local.size(), 0);
      for (auto *times : {&warp.clock, &warp.fenced, &warp.inits})
        times->assign(clocks, 0);
      warp.clock[warp.id] = 1;
      warp.copies.clear();
      std::fill(std::begin(warp.copyGroup), std::end(warp.copyGroup), 0);
      warp.bulkStores.clear();
      std::fill(std::begin(warp.bulkGroup), std::end(warp.bulkGroup), 0);
      warp.wgmma = WgmmaState();
      warp.lastAllocation = nullptr;
      warp.clusterArrived = false;
      warp.executed = 0;
      warp.cached.fill(~uint64_t(0));
      warp.registers = launch->registers;
      warp.registerChanges = 0;
      for (const Constant &constant : kernel.constants)
        warp.initialised[constant.slot] = 0xffffffffu;
      for (const auto &address : kernel.addresses)
        warp.initialised[address.first] = 0xffffffffu;
      for (const Constant &constant : kernel.constantPredicates) {
        warp.predicates[constant.slot] = constant.value ? 0xffffffffu : 0;
        warp.predicatesInitialised[constant.slot] = 0xffffffffu;
      }
      for (const auto &[slot, special] : kernel.specials) {
        bool wide = special == Special::Clock64 ||
                    special == Special::GlobalTimer ||
                    special == Special::DynamicShared;
        warp.initialised[slot] = 0xffffffffu;
        for (unsigned lane = 0; lane < 32; ++lane)
          if (wide)
            warp.lanes<uint64_t>(slot)[lane] = valueOf(special, warp, lane);
          else
            warp.lanes<uint32_t>(slot)[lane] =
                uint32_t(valueOf(special, warp, lane));
      }
    }
  }
}

void Cluster::run() {
  // Which warp goes first changes from round to round: what is right in one
  // order alone is a race, but its effects should differ as well.
  uint64_t limit = launch->options->limit;
  unsigned all = numWarps(), perBlock = unsigned(blocks[0].warps.size());
  uint64_t chance = 0;
  for (unsigned round = 0;; round += 3) {
    bool progress = false, done = true;
    for (unsigned i = 0; i < all; ++i) {
      unsigned number = (i + round) % all;
      Warp &warp = blocks[number / perBlock].warps[number % perBlock];
      if (warp.status == Status::Polling && warp.groups.size()) {
        bool changed = false;
        for (const Group &group : warp.groups)
          changed |= !group.waits && group.polled != version;
        if (changed)
          warp.status = Status::Running;
      }
      if (warp.status == Status::Running) {
        warp.run(1 << 16);
        progress = true;
        if (executed > limit)
          warp.fail(
              launch->kernel->code[warp.groups.empty() ? 0 : warp.groups[0].pc],
              0, "expected a block to end within ", limit,
              " warp instructions, but got more");
      }
      done &= warp.status == Status::Done;
    }
    if (done) {
      checkIssued(*this);
      checkRegisterChanges(*this);
      checkCopies(*this);
      counts.blocks += blocks.size();
      for (const Block &block : blocks)
        for (const Warp &warp : block.warps)
          counts.longestWarp = std::max(counts.longestWarp, warp.executed);
      return;
    }
    if (progress)
      continue;
    // Everybody waits: a bulk copy arrives as late as it can.
    if (bulkCopies.empty()) {
      // A wait that fails may be followed by work: all get one more chance.
      if (version == chance)
        failDeadlock(*this);
      chance = ++version;
      continue;
    }
    land(*this, bulkCopies.front());
    bulkCopies.pop_front();
    ++version;
  }
}

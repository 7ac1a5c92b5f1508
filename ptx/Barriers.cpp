// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Barriers of a block and of a cluster, and fences. PTX ISA, "bar", "barrier",
// "barrier.cluster", "membar / fence".

#include "Lanes.h"
#include "Mbarriers.h"
#include <algorithm>
#include <cstdlib>

using namespace ptx;

static void join(std::vector<uint32_t> &into,
                 const std::vector<uint32_t> &from) {
  into.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i)
    into[i] = std::max(into[i], from[i]);
}

/// op[0] is the number, op[1] the count of threads where there is one; `aux`
/// says that the warp only arrives.
static void barrier(Warp &warp, const Insn &insn, uint32_t mask) {
  unsigned lane = unsigned(__builtin_ctz(mask));
  uint32_t number = warp.lanes<uint32_t>(insn.op[0])[lane];
  Block &block = *warp.block;
  uint32_t all = uint32_t(warp.block->cluster->launch->block.count());
  uint32_t whole = (all + 31) / 32 * 32;
  uint32_t expected = insn.imm ? warp.lanes<uint32_t>(insn.op[1])[lane] : whole;
  if (number > 15)
    warp.fail(insn, lane, "expected a barrier of 0 to 15, but got ", number);
  if (expected == 0 || expected % 32 || expected > whole)
    warp.fail(insn, lane, "expected a multiple of 32 threads up to ", whole,
              ", but got ", expected);
  forLanes(mask, [&](unsigned i) {
    if (warp.lanes<uint32_t>(insn.op[0])[i] != number)
      warp.fail(insn, i, "expected one barrier in all lanes, but got ", number,
                " and another");
  });
  Barrier &barrier = block.barriers[number];
  if (barrier.arrived && barrier.expected != expected)
    warp.fail(insn, lane, "expected ", barrier.expected, " threads at barrier ",
              number, " as before, but got ", expected);
  barrier.expected = expected;
  barrier.arrived += 32;
  ++block.cluster->counts.barriers;
  join(barrier.clock, warp.clock);
  join(barrier.fenced, warp.fenced);
  warp.tick();
  if (!insn.aux) {
    warp.status = Status::AtBarrier;
    warp.barrierId = number;
    barrier.waiting.push_back(&warp);
  }
  if (barrier.arrived < expected)
    return;
  for (Warp *other : barrier.waiting) {
    other->acquire(barrier.clock, barrier.fenced);
    other->status = Status::Running;
  }
  barrier = Barrier();
  ++block.cluster->version;
}

static void leaveClusterBarrier(Warp &warp) {
  const Cluster &cluster = *warp.block->cluster;
  warp.acquire(cluster.doneClock, cluster.doneFenced);
  join(warp.inits, cluster.doneInits);
  warp.clusterArrived = false;
}

/// `aux`: 1 arrives, 2 waits. A phase is over where all warps have arrived; the
/// next one cannot be before each of them has waited.
static void clusterBarrier(Warp &warp, const Insn &insn, uint32_t mask) {
  Cluster &cluster = *warp.block->cluster;
  unsigned lane = unsigned(__builtin_ctz(mask));
  if (insn.aux == 1) {
    if (warp.clusterArrived)
      warp.fail(
          insn, lane,
          "expected barrier.cluster.wait between two arrivals, but got none");
    warp.clusterArrived = true;
    warp.clusterPhase = cluster.phase;
    // A relaxed arrival orders nothing but what fence.mbarrier_init is for.
    join(cluster.inits, warp.inits);
    if (!insn.imm) {
      join(cluster.clock, warp.clock);
      join(cluster.fenced, warp.fenced);
      warp.tick();
    }
    if (++cluster.clusterArrived < cluster.numWarps())
      return;
    cluster.clusterArrived = 0;
    ++cluster.phase;
    ++cluster.version;
    cluster.doneClock.swap(cluster.clock);
    cluster.doneFenced.swap(cluster.fenced);
    cluster.doneInits.swap(cluster.inits);
    for (auto *times : {&cluster.clock, &cluster.fenced, &cluster.inits})
      times->assign(cluster.numClocks(), 0);
    for (Block &block : cluster.blocks)
      for (Warp &other : block.warps)
        if (other.status == Status::AtClusterBarrier) {
          leaveClusterBarrier(other);
          other.status = Status::Running;
        }
    return;
  }
  if (!warp.clusterArrived)
    warp.fail(insn, lane,
              "expected barrier.cluster.arrive before a wait, but got none");
  ++cluster.counts.barriers;
  if (cluster.phase == warp.clusterPhase) {
    warp.status = Status::AtClusterBarrier;
    return;
  }
  leaveClusterBarrier(warp);
}

static void fence(Warp &, const Insn &, uint32_t) {}

static void initFence(Warp &warp, const Insn &, uint32_t) {
  publish(warp);
  warp.inits[warp.id] = warp.now();
  warp.tick();
}

/// What this warp did, and what it comes after, is visible to the asynchronous
/// proxy from here on.
static void proxyFence(Warp &warp, const Insn &, uint32_t) {
  publish(warp);
  for (size_t i = 0; i < warp.clock.size(); ++i)
    warp.fenced[i] = std::max(warp.fenced[i], warp.clock[i]);
  warp.tick();
}

[[noreturn]] void ptx::failDeadlock(Cluster &cluster) {
  for (Block &block : cluster.blocks)
    for (Warp &warp : block.warps) {
      if (warp.status == Status::Done)
        continue;
      const Group &group = warp.groups[0];
      unsigned lane = unsigned(__builtin_ctz(group.mask));
      // A warp that waits is already behind the instruction.
      const Insn &insn = warp.kernel->code[group.pc ? group.pc - 1 : 0];
      if (warp.status == Status::AtBarrier) {
        const Barrier &barrier = block.barriers[warp.barrierId];
        warp.fail(insn, lane, "expected ", barrier.expected,
                  " threads at barrier ", warp.barrierId, ", but got ",
                  barrier.arrived, " and a deadlock");
      }
      if (warp.status == Status::AtClusterBarrier)
        warp.fail(insn, lane, "expected ", cluster.numWarps(),
                  " warps at the barrier of the cluster, but got ",
                  cluster.clusterArrived, " and a deadlock");
      if (warp.status == Status::AtRegisters)
        failForRegisters(warp, insn, lane);
      if (warp.kernel->code[group.pc].kind == Class::Matrix)
        checkIssued(cluster);
      warp.fail(insn, lane,
                "expected an mbarrier to complete, but got a deadlock");
    }
  std::abort(); // only called where a warp waits
}

static bool decodeClusterBarrier(Decoder &d) {
  d.require(90);
  int action = d.choose({"arrive", "wait"});
  if (action < 0)
    d.fail("expected '.arrive' or '.wait', but got '", d.statement.opcode, "'");
  d.insn.imm = d.choose({"relaxed", "release", "acquire"}) == 0;
  d.take("aligned");
  d.expectOperands(0);
  d.insn.aux = action ? 2 : 1;
  d.insn.flags |= Converges | MayWait;
  d.insn.members = notExited;
  d.insn.handler = clusterBarrier;
  return true;
}

bool ptx::decodeBarrier(Decoder &d) {
  if (d.name == "fence" || d.name == "membar") {
    d.insn.kind = Class::Barrier;
    d.expectOperands(0);
    if (d.take("proxy")) {
      d.require(d.choose({"async", "alias", "tensormap::generic"}) == 0 ? 90
                                                                        : 70);
      d.choose({"global", "shared::cta", "shared::cluster", "async"});
      d.choose({"acquire", "release"});
      d.insn.handler = proxyFence;
      return true;
    }
    if (d.take("mbarrier_init")) {
      d.require(90);
      d.expect("release");
      d.expect("cluster");
      d.insn.handler = initFence;
      return true;
    }
    d.choose({"sc", "acq_rel", "acquire", "release"});
    if (d.choose({"cta", "cluster", "gpu", "sys", "gl"}) < 0)
      d.fail("expected a scope, but got '", d.statement.opcode, "'");
    d.insn.handler = fence;
    return true;
  }
  if (d.name != "bar" && d.name != "barrier")
    return false;
  d.insn.kind = Class::Barrier;
  if (d.take("cluster"))
    return decodeClusterBarrier(d);
  d.take("cta");
  int action = d.choose({"sync", "arrive"});
  if (action < 0)
    d.fail("expected an instruction that the interpreter knows, but got '",
           d.statement.opcode, "'");
  d.take("aligned");
  d.expectOperands(action ? 2 : 1, 2);
  d.insn.op[0] = d.use(size_t(0), Type::U32);
  d.insn.imm = d.size() == 2;
  if (d.insn.imm)
    d.insn.op[1] = d.use(1, Type::U32);
  d.insn.aux = uint32_t(action);
  d.insn.flags |= Converges | MayWait;
  d.insn.members = notExited;
  d.insn.handler = barrier;
  return true;
}

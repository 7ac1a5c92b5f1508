// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Objects that count arrivals and bytes. PTX ISA, "mbarrier". A phase is over
// where no arrival and no byte is pending; the token of an arrival is its
// phase.

#include "Mbarriers.h"
#include "Access.h"
#include "Lanes.h"
#include <algorithm>

using namespace ptx;

static constexpr int64_t maxCount = (1 << 20) - 1;

/// The object at a shared address, which must be one.
static Mbarrier &objectAt(Warp &warp, const Insn &insn, unsigned lane,
                          uint64_t address) {
  if (address % 8)
    warp.fail(insn, lane,
              "expected an address that is a multiple of 8, but got ", address);
  Block &block = blockOf(warp, insn, lane, address, 8);
  block.shared.useBarrier(warp, insn, lane, uint32_t(address));
  return block.mbarriers[uint32_t(address)];
}

static void mergeClocks(std::vector<uint32_t> &into,
                        const std::vector<uint32_t> &from) {
  into.resize(std::max(into.size(), from.size()));
  for (size_t i = 0; i < from.size(); ++i)
    into[i] = std::max(into[i], from[i]);
}

void ptx::completePhase(Cluster &cluster, Mbarrier &barrier) {
  if (barrier.pending || barrier.bytes)
    return;
  ++barrier.phase;
  barrier.pending = barrier.count;
  barrier.doneClock.swap(barrier.clock);
  barrier.doneFenced.swap(barrier.fenced);
  barrier.clock.clear();
  barrier.fenced.clear();
  ++cluster.version;
}

void ptx::publish(Warp &warp) {
  for (Block &block : warp.block->cluster->blocks)
    for (auto &entry : block.mbarriers)
      entry.second.published |= entry.second.maker == warp.id;
}

/// The address of an mbarrier, of a generic address too.
static uint64_t placeOf(Warp &warp, const Insn &insn, unsigned lane) {
  uint64_t address = warp.addressOf(insn, 0, lane) + uint64_t(insn.imm);
  if (address >> windowShift == 1)
    address -= sharedWindow;
  return address;
}

static void initialise(Warp &warp, const Insn &insn, uint32_t mask) {
  const uint32_t *counts = warp.lanes<uint32_t>(insn.op[1]);
  forLanes(mask, [&](unsigned lane) {
    uint64_t address = placeOf(warp, insn, lane);
    if (address % 8)
      warp.fail(insn, lane,
                "expected an address that is a multiple of 8, but got ",
                address);
    Block &block = blockOf(warp, insn, lane, address, 8);
    if (counts[lane] == 0 || counts[lane] > maxCount)
      warp.fail(insn, lane, "expected a count of 1 to ", maxCount, ", but got ",
                counts[lane]);
    block.shared.beginBarrier(warp, insn, lane, uint32_t(address));
    Mbarrier made;
    made.count = made.pending = counts[lane];
    made.maker = warp.id;
    block.mbarriers[uint32_t(address)] = made;
  });
}

static void invalidate(Warp &warp, const Insn &insn, uint32_t mask) {
  forLanes(mask, [&](unsigned lane) {
    uint64_t address = placeOf(warp, insn, lane);
    if (int64_t bytes = objectAt(warp, insn, lane, address).bytes)
      warp.fail(insn, lane,
                "expected an mbarrier that waits for no bytes, but got ",
                bytes);
    Block &block = blockOf(warp, insn, lane, address, 8);
    block.mbarriers.erase(uint32_t(address));
    block.shared.endBarrier(uint32_t(address));
  });
}

namespace {
enum : uint32_t { Arrives = 1, Expects = 2, Relaxed = 4 };
} // namespace

/// `aux` says what it does; op[1] is the token, op[2] the count of arrivals,
/// op[3] that of bytes.
static void arrive(Warp &warp, const Insn &insn, uint32_t mask) {
  uint64_t *token = warp.lanes<uint64_t>(insn.op[1]);
  const uint32_t *arrivals = warp.lanes<uint32_t>(insn.op[2]);
  const uint32_t *bytes = warp.lanes<uint32_t>(insn.op[3]);
  Cluster &cluster = *warp.block->cluster;
  forLanes(mask, [&](unsigned lane) {
    Mbarrier &barrier = objectAt(warp, insn, lane, placeOf(warp, insn, lane));
    if (insn.aux & Expects) {
      barrier.bytes += bytes[lane];
      if (bytes[lane] > maxCount || barrier.bytes > maxCount)
        warp.fail(insn, lane, "expected at most ", maxCount,
                  " bytes of an mbarrier, but got ",
                  std::max<int64_t>(barrier.bytes, bytes[lane]));
    }
    if (!(insn.aux & Arrives))
      return;
    token[lane] = barrier.phase;
    if (arrivals[lane] == 0 || arrivals[lane] > barrier.pending)
      warp.fail(insn, lane, "expected 1 to ", barrier.pending,
                " arrivals at an mbarrier, but got ", arrivals[lane]);
    barrier.pending -= arrivals[lane];
    // A relaxed arrival orders nothing.
    if (!(insn.aux & Relaxed)) {
      mergeClocks(barrier.clock, warp.clock);
      mergeClocks(barrier.fenced, warp.fenced);
    }
    completePhase(cluster, barrier);
  });
  warp.tick();
}

/// Bits of Insn::aux of a wait: it has a parity, no token; it may suspend; it
/// is relaxed, so that nothing comes after it.
constexpr uint32_t parityBit = 1, triesBit = 2, relaxedBit = 4;

/// op[1] is the predicate, op[2] the parity or token.
static void wait(Warp &warp, const Insn &insn, uint32_t mask) {
  const uint32_t *parity = warp.lanes<uint32_t>(insn.op[2]);
  const uint64_t *token = warp.lanes<uint64_t>(insn.op[2]);
  uint32_t complete = 0;
  forLanes(mask, [&](unsigned lane) {
    Mbarrier &barrier = objectAt(warp, insn, lane, placeOf(warp, insn, lane));
    bool done;
    if (insn.aux & parityBit) {
      if (parity[lane] > 1)
        warp.fail(insn, lane, "expected a parity of 0 or 1, but got ",
                  parity[lane]);
      done = (barrier.phase & 1) != parity[lane];
    } else {
      if (token[lane] != barrier.phase && token[lane] + 1 != barrier.phase)
        warp.fail(insn, lane,
                  "expected the token of this phase or the last one, but got "
                  "that of phase ",
                  token[lane], " in phase ", barrier.phase);
      done = token[lane] != barrier.phase;
    }
    complete |= uint32_t(done) << lane;
    if (done && !(insn.aux & relaxedBit))
      warp.acquire(barrier.doneClock, barrier.doneFenced);
  });
  warp.setPredicate(insn.op[1], mask, complete);
  warp.polledNow = complete != mask;
  warp.staysNow = warp.polledNow && insn.aux & triesBit &&
                  warp.block->cluster->launch->options->suspendsWaits;
}

/// Says whether the order is relaxed.
static bool decodeScope(Decoder &d) {
  bool isRelaxed = d.choose({"release", "acquire", "relaxed"}) == 2;
  d.choose({"cta", "cluster"});
  return isRelaxed;
}

static bool decodeWait(Decoder &d) {
  bool tries = d.take("try_wait");
  if (!tries)
    d.expect("test_wait");
  d.require(tries ? 90 : 80);
  bool parity = d.take("parity"), isRelaxed = decodeScope(d);
  d.choose({"shared", "shared::cta"});
  d.expect("b64");
  d.expectOperands(3, tries ? 4 : 3);
  d.insn.op[1] = d.predicateNamed(d.operand(0).name);
  d.address(d.operand(1), 0, Space::Shared, d.insn.imm);
  d.insn.op[2] = d.use(2, parity ? Type::U32 : Type::U64);
  if (d.size() == 4)
    d.use(3, Type::U32); // a hint of how long to wait
  d.insn.aux = (parity ? parityBit : 0) | (tries ? triesBit : 0) |
               (isRelaxed ? relaxedBit : 0);
  d.insn.flags |= MayWait;
  d.insn.handler = wait;
  return true;
}

bool ptx::decodeMbarrier(Decoder &d) {
  if (d.name != "mbarrier")
    return false;
  d.insn.kind = Class::Barrier;
  d.require(80);
  if (d.take("init") || d.take("inval")) {
    bool begins = d.statement.opcode.find(".init") != std::string_view::npos;
    d.choose({"shared", "shared::cta"});
    d.expect("b64");
    d.expectOperands(begins ? 2 : 1);
    d.address(d.operand(0), 0, Space::Shared, d.insn.imm);
    if (begins)
      d.insn.op[1] = d.use(1, Type::U32);
    d.insn.handler = begins ? initialise : invalidate;
    return true;
  }
  bool arrives = d.take("arrive"), expects = d.take("expect_tx");
  if (!arrives && !expects)
    return decodeWait(d);
  if (expects)
    d.require(90);
  if (decodeScope(d))
    d.insn.aux |= Relaxed;
  bool remote = d.take("shared::cluster");
  if (!remote)
    d.choose({"shared", "shared::cta"});
  d.expect("b64");
  size_t first = arrives ? 1 : 0;
  d.expectOperands(first + 1 + expects, first + 2);
  if (arrives && remote && d.operand(0).name != "_")
    d.fail("expected '_' for the token of another block's mbarrier, but got '",
           d.operand(0).name, "'");
  d.insn.op[1] = arrives ? d.define(size_t(0), Type::U64) : d.builder.scratch();
  d.address(d.operand(first), 0, Space::Shared, d.insn.imm);
  uint32_t one = d.builder.constant(1, false);
  uint32_t given = d.size() == first + 2 ? d.use(first + 1, Type::U32) : one;
  d.insn.op[2] = expects ? one : given;
  d.insn.op[3] = given;
  if (arrives)
    d.insn.aux |= Arrives;
  if (expects)
    d.insn.aux |= Expects;
  d.insn.handler = arrive;
  return true;
}

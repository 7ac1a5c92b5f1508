// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// cp.async: copies that arrive as late as they can, in the wait that needs
// them. PTX ISA, "cp.async", "cp.async.commit_group", "cp.async.wait_group".

#include "Access.h"
#include "Lanes.h"

using namespace ptx;

static constexpr uint32_t passesL1 = 32;

/// `aux` has the number of bytes and whether they pass L1; op[2] says how many
/// of them are read, where there is such an operand (imm2's upper half).
static void copyAsync(Warp &warp, const Insn &insn, uint32_t mask) {
  unsigned bytes = insn.aux & 31;
  uint64_t from[32], to[32];
  uint32_t reading = 0;
  const uint32_t *sizes =
      insn.count ? warp.lanes<uint32_t>(warp.list(insn)[0]) : nullptr;
  forLanes(mask, [&](unsigned lane) {
    to[lane] = warp.addressOf(insn, 0, lane) + uint64_t(insn.imm);
    from[lane] = warp.addressOf(insn, 1, lane) + uint64_t(insn.imm2);
    unsigned valid = bytes;
    if (sizes) {
      if (sizes[lane] > bytes)
        warp.fail(insn, lane, "expected a source of at most ", bytes,
                  " bytes, but got ", sizes[lane]);
      valid = sizes[lane];
    }
    if (to[lane] % bytes || from[lane] % bytes)
      warp.fail(insn, lane, "expected addresses that are multiples of ", bytes,
                ", but got shared ", to[lane], " and global ", from[lane]);
    Block &block = blockOf(warp, insn, lane, to[lane], bytes);
    if (&block != warp.block)
      warp.fail(insn, lane,
                "expected shared memory of the block, but got that of another");
    block.shared.beginCopy(warp, insn, lane, uint32_t(to[lane]), bytes);
    if (valid) {
      accessGlobal(warp, insn, lane, from[lane], valid, Access::Read);
      reading |= 1u << lane;
    }
    warp.copies.push_back({from[lane], uint32_t(to[lane]), warp.copyGroup[lane],
                           warp.copySerial++, uint8_t(lane), uint8_t(bytes),
                           uint8_t(valid)});
  });
  Counts &counts = warp.block->cluster->counts;
  ++counts.asyncCopies;
  countGlobal(warp, from, reading, Access::Read, insn.aux & passesL1);
  countShared(counts, to, mask, bytes);
}

static void commit(Warp &warp, const Insn &, uint32_t mask) {
  forLanes(mask, [&](unsigned lane) { ++warp.copyGroup[lane]; });
}

/// Brings the bytes of a copy.
static void finish(Warp &warp, const AsyncCopy &copy) {
  uint8_t *to = warp.block->shared.at(copy.to);
  std::memset(to, 0, copy.bytes);
  if (!copy.valid)
    return;
  const Allocation *from = warp.block->cluster->launch->memory->find(copy.from);
  std::memcpy(to, &from->bytes[copy.from - from->address], copy.valid);
}

/// cp.async.mbarrier.arrive: an arrival when the copies so far are there. With
/// `aux` it is one of those that the mbarrier expects.
static void arriveAfter(Warp &warp, const Insn &insn, uint32_t mask) {
  forLanes(mask, [&](unsigned lane) {
    uint64_t address = warp.addressOf(insn, 0, lane) + uint64_t(insn.imm);
    if (address % 8)
      warp.fail(insn, lane,
                "expected an address that is a multiple of 8, but got ",
                address);
    Block &block = blockOf(warp, insn, lane, address, 8);
    block.shared.useBarrier(warp, insn, lane, uint32_t(address));
    Mbarrier &barrier = block.mbarriers[uint32_t(address)];
    if (insn.aux && !barrier.pending)
      warp.fail(insn, lane,
                "expected an mbarrier that waits for an arrival, but got none");
    barrier.pending += !insn.aux;
    BulkCopy copy{};
    copy.warp = &warp;
    copy.insn = &insn;
    copy.lane = lane;
    copy.block = &block;
    copy.barrier = uint32_t(address);
    copy.arrives = true;
    copy.serial = warp.copySerial;
    warp.block->cluster->bulkCopies.push_back(std::move(copy));
  });
}

/// Ends the copies of all groups of a lane but the last `imm`.
static void wait(Warp &warp, const Insn &insn, uint32_t mask) {
  Shared &shared = warp.block->shared;
  size_t kept = 0;
  for (const AsyncCopy &copy : warp.copies) {
    unsigned lane = copy.lane;
    // wait_all waits for what no group has yet.
    bool due = insn.aux ||
               int64_t(copy.group) < int64_t(warp.copyGroup[lane]) - insn.imm;
    if (!(mask >> lane & 1) || !due) {
      warp.copies[kept++] = copy;
      continue;
    }
    finish(warp, copy);
    shared.endCopy(warp, lane, copy.to, copy.bytes);
  }
  warp.copies.resize(kept);
}

void ptx::landCopies(Warp &warp, unsigned lane, uint32_t serial, uint32_t now) {
  size_t kept = 0;
  for (const AsyncCopy &copy : warp.copies) {
    if (copy.lane != lane || copy.serial >= serial) {
      warp.copies[kept++] = copy;
      continue;
    }
    finish(warp, copy);
    warp.block->shared.endCopyAt(copy.to, copy.bytes, now);
  }
  warp.copies.resize(kept);
}

bool ptx::decodeAsyncCopy(Decoder &d) {
  if (d.name != "cp" ||
      d.statement.opcode.find(".bulk") != std::string_view::npos)
    return false;
  d.expect("async");
  d.require(80);
  d.insn.kind = Class::AsyncCopy;
  if (d.take("commit_group")) {
    d.expectOperands(0);
    d.insn.handler = commit;
    return true;
  }
  if (d.take("mbarrier")) {
    d.expect("arrive");
    d.insn.aux = d.take("noinc");
    d.choose({"shared", "shared::cta"});
    d.expect("b64");
    d.expectOperands(1);
    d.address(d.operand(0), 0, Space::Shared, d.insn.imm);
    d.insn.handler = arriveAfter;
    return true;
  }
  if (d.take("wait_all")) {
    d.expectOperands(0);
    d.insn.aux = 1;
    d.insn.handler = wait;
    return true;
  }
  if (d.take("wait_group")) {
    d.expectOperands(1);
    d.insn.imm = d.number(0);
    if (d.insn.imm < 0)
      d.fail("expected a number of groups, but got ", d.insn.imm);
    d.insn.handler = wait;
    return true;
  }
  int cache = d.choose({"ca", "cg"});
  if (cache < 0 || d.choose({"shared", "shared::cta"}) < 0 || !d.take("global"))
    d.fail("expected cp.async.ca or .cg from .global to .shared, but got '",
           d.statement.opcode, "'");
  d.choose({"L2::64B", "L2::128B", "L2::256B"});
  d.expectOperands(3, 4);
  d.address(d.operand(0), 0, Space::Shared, d.insn.imm);
  d.address(d.operand(1), 1, Space::Global, d.insn.imm2);
  int64_t bytes = d.number(2);
  if (bytes != 16 && (cache == 1 || (bytes != 4 && bytes != 8)))
    d.fail("expected a copy of ", cache ? "16" : "4, 8 or 16",
           " bytes, but got ", bytes);
  if (d.size() == 4)
    d.list(d.use(3, Type::U32));
  d.insn.aux = uint32_t(bytes) | (cache == 1 ? passesL1 : 0);
  d.insn.handler = copyAsync;
  return true;
}

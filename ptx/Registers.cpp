// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many registers a thread has: what a launch gives it, and what warpgroups
// give and take. PTX ISA, "setmaxnreg".

#include "Lanes.h"
#include <algorithm>

using namespace ptx;

unsigned ptx::registersAtLaunch(const Launch &launch) {
  const EntryInfo &info = launch.kernel->info;
  if (unsigned given = std::max(launch.options->registers, info.maxRegisters))
    return given;
  uint64_t threads =
      info.requiredBlock.x ? info.requiredBlock.count() : info.maxThreads;
  if (threads == 0)
    return 0;
  // As many as the warps of a quarter of the multiprocessor leave each other.
  constexpr uint64_t quarters = 4, lanes = 32;
  uint64_t warps = (threads + lanes - 1) / lanes;
  uint64_t ofQuarter = (warps + quarters - 1) / quarters;
  uint64_t most =
      nvidia::maxBlockRegisters / quarters / lanes / ofQuarter / 8 * 8;
  return unsigned(std::min<uint64_t>(most, nvidia::maxThreadRegisters));
}

/// What a warp is missing in the pool of its block.
static int64_t getMissing(const Warp &warp) {
  int64_t wanted = 32 * (int64_t(warp.wantedRegisters) - warp.registers);
  return wanted - warp.block->freeRegisters;
}

static void take(Warp &warp) {
  warp.block->freeRegisters -=
      32 * (int64_t(warp.wantedRegisters) - warp.registers);
  warp.registers = warp.wantedRegisters;
  warp.status = Status::Running;
}

/// `imm` is the count, `aux` says that it is less.
static void setRegisters(Warp &warp, const Insn &insn, uint32_t mask) {
  unsigned lane = unsigned(__builtin_ctz(mask));
  Block &block = *warp.block;
  auto count = unsigned(insn.imm);
  if (warp.index / 4 * 4 + 4 > block.warps.size())
    warp.fail(insn, lane, "expected whole groups of 4 warps, but got ",
              block.warps.size(), " warps");
  if (warp.registers == 0)
    warp.fail(insn, lane,
              "expected .maxnreg, .maxntid or .reqntid, which say how many "
              "registers a thread has, but got none");
  std::vector<const Insn *> &changes = block.registerChanges[warp.index / 4];
  if (warp.registerChanges == changes.size())
    changes.push_back(&insn);
  else if (changes[warp.registerChanges] != &insn)
    warp.fail(insn, lane,
              "expected the setmaxnreg of the other warps of its group, but "
              "got another one");
  ++warp.registerChanges;
  if (insn.aux ? count > warp.registers : count < warp.registers)
    warp.fail(insn, lane, "expected at ", insn.aux ? "most" : "least", " the ",
              warp.registers, " registers that a thread has, but got ", count);
  warp.wantedRegisters = count;
  if (getMissing(warp) > 0) {
    warp.status = Status::AtRegisters;
    return;
  }
  take(warp);
  for (Warp &other : block.warps)
    if (other.status == Status::AtRegisters && getMissing(other) <= 0)
      take(other);
  ++block.cluster->version;
}

void ptx::failForRegisters(Warp &warp, const Insn &insn, unsigned lane) {
  warp.fail(insn, lane, "expected ",
            getMissing(warp) + warp.block->freeRegisters,
            " registers that other warps have given, but got ",
            warp.block->freeRegisters, " and a deadlock");
}

void ptx::checkRegisterChanges(Cluster &cluster) {
  for (Block &block : cluster.blocks)
    for (Warp &warp : block.warps) {
      const auto &all = block.registerChanges[warp.index / 4];
      if (warp.registerChanges < all.size())
        warp.fail(*all[warp.registerChanges], 0,
                  "expected every warp of a group to execute setmaxnreg, but "
                  "got a warp that has ended");
    }
}

bool ptx::decodeRegisters(Decoder &d) {
  if (d.name != "setmaxnreg")
    return false;
  d.require(d.builder.program.chip->version >= 100 ? 100 : 90, true);
  int action = d.choose({"inc", "dec"});
  if (action < 0)
    d.fail("expected '.inc' or '.dec', but got '", d.statement.opcode, "'");
  d.expect("sync");
  d.expect("aligned");
  d.expect("u32");
  d.expectOperands(1);
  int64_t count = d.number(0);
  if (count < 24 || count > 256 || count % 8)
    d.fail("expected a multiple of 8 from 24 to 256, but got ", count);
  d.insn.flags |= Converges;
  d.insn.members = notExited;
  d.insn.imm = count;
  d.insn.aux = action == 1;
  d.insn.handler = setRegisters;
  return true;
}

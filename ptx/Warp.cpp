// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loop over instructions, and how lanes part and meet: groups of lanes with
// one place each; the group whose place is first (LaneOrder.cpp) runs, and
// groups at the same place are one.

#include "Machine.h"
#include <algorithm>

using namespace ptx;

void Warp::tick() { ++clock[id]; }

void Warp::acquire(const std::vector<uint32_t> &from,
                   const std::vector<uint32_t> &fencedFrom) {
  for (size_t i = 0; i < from.size(); ++i) {
    clock[i] = std::max(clock[i], from[i]);
    fenced[i] = std::max(fenced[i], fencedFrom[i]);
  }
}

std::string Warp::thread(unsigned lane) const {
  const Dim &extent = block->cluster->launch->block;
  uint64_t number = uint64_t(index) * 32 + lane;
  return sparse_opt::concatenate("(", number % extent.x, ",",
                                 number / extent.x % extent.y, ",",
                                 number / extent.x / extent.y, ")");
}

std::string Warp::where(const Insn &insn, unsigned lane) {
  const Dim &at = block->index;
  return sparse_opt::concatenate(", in thread ", thread(lane), " of block (",
                                 at.x, ",", at.y, ",", at.z, ") of '",
                                 kernel->info.name, "', line ", insn.line, ": ",
                                 kernel->texts[&insn - kernel->code.data()]);
}

void Warp::failUninitialised(const Insn &insn, uint32_t lanes) {
  // wgmma takes the value of its accumulators until somebody waits.
  if (!wgmma.busy.empty())
    for (uint32_t i = 0; i < insn.numUses; ++i)
      if (wgmma.busy[kernel->slots[insn.uses + i]])
        fail(insn, unsigned(__builtin_ctz(lanes)),
             "expected wgmma.wait_group before a use of an accumulator, but "
             "got none");
  fail(insn, unsigned(__builtin_ctz(lanes)),
       "expected registers with a value, but got one that was never written");
}

void Warp::checkUses(const Insn &insn, uint32_t mask) {
  const uint32_t *uses = kernel->slots.data() + insn.uses;
  uint32_t missing = 0;
  for (uint32_t i = 0; i < insn.numUses; ++i)
    missing |= ~initialised[uses[i]];
  if (missing & mask)
    failUninitialised(insn, missing & mask);
}

void Warp::noteAccumulators(const Insn &insn) {
  if (wgmma.busy.empty())
    return;
  for (uint32_t i = 0; i < insn.numDefs; ++i) {
    uint32_t slot = kernel->slots[insn.defs + i];
    if (wgmma.busy[slot])
      fail(insn, 0,
           "expected wgmma.wait_group before a write of a register of wgmma, "
           "but got none");
    wgmma.unfenced[slot] = kernel->accumulators[slot];
  }
}

/// The group to run, or -1.
int Warp::pick() {
  int best = -1;
  uint64_t version = block->cluster->version;
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group &group = groups[i];
    auto order = [&](const Group &group) {
      return kernel->code[group.pc].order;
    };
    if (!group.waits && group.polled != version &&
        (best < 0 || order(group) < order(groups[size_t(best)])))
      best = int(i);
  }
  return best;
}

void Warp::merge() {
  for (size_t i = 0; i < groups.size(); ++i)
    for (size_t j = groups.size(); --j > i;)
      if (groups[i].pc == groups[j].pc) {
        groups[i].mask |= groups[j].mask;
        groups[i].waits = false;
        groups[i].polled = 0;
        groups.erase(groups.begin() + long(j));
      }
}

/// Says whether every lane that has to execute the instruction is there; if
/// not, the group waits for the others.
bool Warp::converge(const Insn &insn, Group &group, uint32_t mask) {
  uint32_t members = lanesOfBlock;
  if (insn.members == allLanes)
    members = 0xffffffffu;
  else if (insn.members >= 0)
    forLanes(mask, [&](unsigned i) {
      members = lanes<uint32_t>(uint32_t(insn.members))[i];
      if (!(members >> i & 1))
        fail(insn, i, "expected a member mask with the lane itself, but got ",
             members);
    });
  uint32_t missing = members & ~mask;
  if (!missing)
    return true;
  uint32_t never = missing & (exited | ~lanesOfBlock | group.mask);
  if (never)
    fail(insn, unsigned(__builtin_ctz(never)) % 32,
         "expected every lane to execute the instruction, but got a lane that ",
         never & exited          ? "has ended"
         : never & ~lanesOfBlock ? "the block has not"
                                 : "does not");
  group.waits = true;
  return false;
}

/// brx.idx: each lane goes to the target of its index.
void Warp::choose(const Insn &insn, size_t from, uint32_t mask) {
  checkUses(insn, mask);
  const uint32_t *index = lanes<uint32_t>(insn.op[0]);
  std::vector<uint32_t> masks(insn.count);
  forLanes(mask, [&](unsigned lane) {
    if (index[lane] >= insn.count)
      fail(insn, lane, "expected an index below ", insn.count, ", but got ",
           index[lane]);
    masks[index[lane]] |= 1u << lane;
  });
  groups[from].mask &= ~mask;
  ++groups[from].pc;
  if (!groups[from].mask)
    groups.erase(groups.begin() + long(from));
  for (uint32_t i = 0; i < insn.count; ++i)
    if (masks[i])
      groups.push_back({list(insn)[i], masks[i]});
}

void Warp::step() {
  int chosen = pick();
  if (chosen < 0) {
    for (const Group &group : groups)
      if (!group.waits) {
        status = Status::Polling;
        return;
      }
    const Group &group = groups.front();
    fail(kernel->code[group.pc], unsigned(__builtin_ctz(group.mask)),
         "expected the lanes of a warp to meet at one instruction, but got "
         "lanes that wait at ",
         groups.size());
  }
  Group &group = groups[size_t(chosen)];
  const Insn &insn = kernel->code[group.pc];
  Cluster &cluster = *block->cluster;
  uint32_t mask = group.mask;
  if (insn.guard >= 0) {
    uint32_t slot = uint32_t(insn.guard);
    uint32_t value = predicate(insn, slot, mask);
    mask = insn.guardNegated ? mask & ~value : value;
  }
  if (insn.flags & (Branches | Exits)) {
    cluster.count(insn);
    ++cluster.executed;
    uint32_t rest = group.mask & ~mask;
    if (insn.count) {
      choose(insn, size_t(chosen), mask);
    } else if (insn.flags & Exits) {
      exited |= mask;
      if (rest) {
        group.mask = rest;
        ++group.pc;
      } else {
        groups.erase(groups.begin() + chosen);
      }
    } else if (!rest) {
      group.pc = insn.target;
    } else {
      ++group.pc;
      group.mask = rest;
      if (mask)
        groups.push_back({insn.target, mask});
    }
  } else {
    if (mask) {
      if ((insn.flags & Converges) && !converge(insn, group, mask))
        return;
      if (!(insn.flags & CopiesState))
        checkUses(insn, mask);
      if (insn.flags & WritesAccumulator)
        noteAccumulators(insn);
      polledNow = staysNow = false;
      insn.handler(*this, insn, mask);
      if (polledNow)
        group.polled = cluster.version;
      if (staysNow)
        return;
      if (!(insn.flags & CopiesState))
        for (uint32_t i = 0; i < insn.numDefs; ++i)
          initialised[kernel->slots[insn.defs + i]] |= mask;
    }
    cluster.count(insn);
    ++cluster.executed;
    ++group.pc;
  }
  if (groups.size() > 1)
    merge();
  if (groups.empty())
    status = Status::Done;
}

void Warp::run(uint64_t slice) {
  Cluster &cluster = *block->cluster;
  const Insn *code = kernel->code.data();
  const uint32_t *slots = kernel->slots.data();
  status = Status::Running;
  uint64_t begin = cluster.executed;
  while (status == Status::Running && cluster.executed - begin < slice) {
    // All lanes at one place: the short way. What parts lanes, or waits, takes
    // the long one.
    if (groups.size() == 1 && !groups[0].waits && !groups[0].polled) {
      uint32_t pc = groups[0].pc, lanes = groups[0].mask;
      uint64_t executed = 0;
      for (;;) {
        const Insn &insn = code[pc];
        uint32_t mask = lanes;
        if (insn.guard >= 0) {
          uint32_t value = predicate(insn, uint32_t(insn.guard), mask);
          mask = insn.guardNegated ? mask & ~value : value;
        }
        if (insn.flags & (Branches | Exits | MayWait | Converges)) {
          if (insn.flags == Branches && !insn.count &&
              (mask == lanes || !mask)) {
            pc = mask ? insn.target : pc + 1;
            cluster.count(insn);
            if (++executed > 4096)
              break;
            continue;
          }
          if (insn.flags != Converges || mask != 0xffffffffu ||
              insn.members != allLanes)
            break;
        }
        if (mask) {
          if (!(insn.flags & CopiesState)) {
            uint32_t missing = 0;
            for (uint32_t i = 0; i < insn.numUses; ++i)
              missing |= ~initialised[slots[insn.uses + i]];
            if (missing & mask)
              failUninitialised(insn, missing & mask);
          }
          if (insn.flags & WritesAccumulator)
            noteAccumulators(insn);
          insn.handler(*this, insn, mask);
          if (!(insn.flags & CopiesState))
            for (uint32_t i = 0; i < insn.numDefs; ++i)
              initialised[slots[insn.defs + i]] |= mask;
        }
        cluster.count(insn);
        ++executed;
        ++pc;
      }
      groups[0].pc = pc;
      cluster.executed += executed;
      if (executed > 4096)
        continue;
    }
    step();
  }
  executed += cluster.executed - begin;
}

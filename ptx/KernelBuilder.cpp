// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "KernelBuilder.h"
#include "Windows.h"

using namespace ptx;

static constexpr uint32_t maxSlots = 1 << 20;

uint32_t KernelBuilder::makeSlots(unsigned count, uint8_t bytes, int line) {
  uint32_t &next = bytes ? kernel.numSlots : kernel.numPredicates;
  uint32_t first = next;
  if (count > maxSlots || next > maxSlots)
    failAt(line, "expected at most ", maxSlots, " registers, but got more");
  next += bytes == 8 ? 2 * count : count;
  return first;
}

void KernelBuilder::declare(std::string_view name, Type type, int line) {
  uint8_t bytes = uint8_t(sizeOf(type));
  Register made{makeSlots(1, bytes, line), bytes};
  if (!scopes.back().registers.emplace(name, made).second)
    failAt(line, "expected one register '", name, "', but got two");
}

void KernelBuilder::declareMany(std::string_view prefix, unsigned count,
                                Type type, int line) {
  uint8_t bytes = uint8_t(sizeOf(type));
  if (scopes.size() > 1 && !scopes.back().isFunction) {
    failAt(line,
           "expected registers by number at the top of a kernel, but got '",
           prefix, "' in braces");
  }
  std::vector<Range> &ranges = scopes.back().ranges;
  for (const Range &range : ranges)
    if (range.prefix == prefix)
      failAt(line, "expected one register '", prefix, "', but got two");
  ranges.push_back({prefix, count, makeSlots(count, bytes, line), bytes});
}

void KernelBuilder::declarePlace(std::string_view name, Place place, int line) {
  if (!scopes.back().places.emplace(name, place).second)
    failAt(line, "expected one variable '", name, "', but got two");
}

void KernelBuilder::declareLabel(std::string_view name, int line) {
  if (!scopes.back().labels.emplace(name, uint32_t(kernel.code.size())).second)
    failAt(line, "expected one label '", name, "', but got two");
}

void KernelBuilder::declareTargets(std::string_view name,
                                   std::vector<std::string_view> labels,
                                   int line) {
  if (!targetLists.emplace(name, std::move(labels)).second)
    failAt(line, "expected one list of targets '", name, "', but got two");
}

const std::vector<std::string_view> *
KernelBuilder::targets(std::string_view name) const {
  auto found = targetLists.find(name);
  return found == targetLists.end() ? nullptr : &found->second;
}

void KernelBuilder::jump(std::string_view label, int line, int place) {
  jumps.push_back({kernel.code.size(), scopes.size(), label, line, place});
}

void KernelBuilder::close() {
  Scope &scope = scopes.back();
  std::vector<Jump> open;
  for (Jump &jump : jumps) {
    auto found = scope.labels.find(jump.label);
    if (jump.depth == scopes.size() && found != scope.labels.end()) {
      Insn &insn = kernel.code[jump.insn];
      if (jump.place < 0)
        insn.target = found->second;
      else
        kernel.slots[insn.list + unsigned(jump.place)] = found->second;
    } else if (scopes.size() == 1) {
      failAt(jump.line, "expected a label of the kernel, but got '", jump.label,
             "'");
    } else {
      open.push_back({jump.insn, std::min(jump.depth, scopes.size() - 1),
                      jump.label, jump.line, jump.place});
    }
  }
  jumps = std::move(open);
  scopes.pop_back();
}

std::optional<Register> KernelBuilder::find(std::string_view name) {
  // %r12 of %r<13>
  size_t digits = name.size();
  while (digits && name[digits - 1] >= '0' && name[digits - 1] <= '9')
    --digits;
  bool isNumbered = digits < name.size() && name.size() - digits < 9 &&
                    (name[digits] != '0' || name.size() == digits + 1);
  unsigned number = 0;
  for (char c : name.substr(isNumbered ? digits : name.size()))
    number = number * 10 + unsigned(c - '0');
  for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
    auto found = scope->registers.find(name);
    if (found != scope->registers.end())
      return found->second;
    if (isNumbered)
      for (const Range &range : scope->ranges)
        if (range.prefix == name.substr(0, digits) && number < range.count)
          return Register{range.first + number * (range.bytes == 8 ? 2 : 1),
                          range.bytes};
    if (scope->isFunction)
      break;
  }
  return std::nullopt;
}

const Place *KernelBuilder::findPlace(std::string_view name) const {
  for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
    auto found = scope->places.find(name);
    if (found != scope->places.end())
      return &found->second;
    if (scope->isFunction)
      break;
  }
  auto found = moduleNames.find(name);
  return found == moduleNames.end() ? nullptr : &found->second;
}

uint32_t KernelBuilder::constant(uint64_t value, bool wide, bool isShared) {
  if (!wide)
    value &= 0xffffffffu;
  auto [it, made] = constants.try_emplace({value, wide, isShared}, 0);
  if (made) {
    it->second = makeSlots(1, wide ? 8 : 4, 0);
    kernel.constants.push_back({it->second, wide, value, isShared});
  }
  return it->second;
}

uint32_t KernelBuilder::constantPredicate(bool value) {
  for (const Constant &known : kernel.constantPredicates)
    if ((known.value != 0) == value)
      return known.slot;
  uint32_t slot = makeSlots(1, 0, 0);
  kernel.constantPredicates.push_back({slot, false, value});
  return slot;
}

uint32_t KernelBuilder::scratch() {
  if (!scratchSlot)
    scratchSlot = makeSlots(1, 8, 0);
  return *scratchSlot;
}

uint32_t KernelBuilder::carry() {
  if (!carryPredicate)
    carryPredicate = makeSlots(1, 0, 0);
  return *carryPredicate;
}

Register KernelBuilder::addressOf(std::string_view name, const Place &place,
                                  bool wide) {
  switch (place.space) {
  case Place::Shared:
    return {constant(sharedBase + place.offset, true, /*isShared=*/true), 8};
  case Place::Local:
  case Place::Param:
    return {constant(place.offset, true), 8};
  case Place::DynamicShared: {
    Special which = wide ? Special::DynamicShared : Special::DynamicShared32;
    auto [it, made] = specials.try_emplace(unsigned(which), 0);
    if (made) {
      it->second = makeSlots(1, wide ? 8 : 4, 0);
      kernel.specials.emplace_back(it->second, which);
    }
    return {it->second, uint8_t(wide ? 8 : 4)};
  }
  case Place::Module:
    break;
  }
  auto [it, made] = addresses.try_emplace(std::string(name), 0);
  if (made) {
    it->second = makeSlots(1, 8, 0);
    kernel.addresses.emplace_back(it->second, it->first);
  }
  return {it->second, 8};
}

std::optional<Register> KernelBuilder::special(std::string_view name) {
  struct Entry {
    std::string_view name;
    Special special;
  };
  using S = Special;
  static constexpr Entry entries[] = {
      {"%tid.x", S::TidX},
      {"%tid.y", S::TidY},
      {"%tid.z", S::TidZ},
      {"%ntid.x", S::NtidX},
      {"%ntid.y", S::NtidY},
      {"%ntid.z", S::NtidZ},
      {"%ctaid.x", S::CtaidX},
      {"%ctaid.y", S::CtaidY},
      {"%ctaid.z", S::CtaidZ},
      {"%nctaid.x", S::NctaidX},
      {"%nctaid.y", S::NctaidY},
      {"%nctaid.z", S::NctaidZ},
      {"%laneid", S::LaneId},
      {"%warpid", S::WarpId},
      {"%nwarpid", S::NWarpId},
      {"%lanemask_eq", S::LanemaskEq},
      {"%lanemask_lt", S::LanemaskLt},
      {"%lanemask_le", S::LanemaskLe},
      {"%lanemask_gt", S::LanemaskGt},
      {"%lanemask_ge", S::LanemaskGe},
      {"%cluster_ctarank", S::ClusterCtarank},
      {"%cluster_nctarank", S::ClusterNctarank},
      {"%cluster_ctaid.x", S::ClusterCtaidX},
      {"%cluster_ctaid.y", S::ClusterCtaidY},
      {"%cluster_ctaid.z", S::ClusterCtaidZ},
      {"%cluster_nctaid.x", S::ClusterNctaidX},
      {"%cluster_nctaid.y", S::ClusterNctaidY},
      {"%cluster_nctaid.z", S::ClusterNctaidZ},
      {"%clusterid.x", S::ClusteridX},
      {"%clusterid.y", S::ClusteridY},
      {"%clusterid.z", S::ClusteridZ},
      {"%nclusterid.x", S::NclusteridX},
      {"%nclusterid.y", S::NclusteridY},
      {"%nclusterid.z", S::NclusteridZ},
      {"%dynamic_smem_size", S::DynamicSmemSize},
      {"%total_smem_size", S::TotalSmemSize},
      {"%clock", S::Clock},
      {"%clock64", S::Clock64},
      {"%globaltimer", S::GlobalTimer},
      {"%smid", S::SmId},
      {"%nsmid", S::NSmId}};
  for (const Entry &entry : entries)
    if (entry.name == name) {
      bool wide =
          entry.special == S::Clock64 || entry.special == S::GlobalTimer;
      auto [it, made] = specials.try_emplace(unsigned(entry.special), 0);
      if (made) {
        it->second = makeSlots(1, wide ? 8 : 4, 0);
        kernel.specials.emplace_back(it->second, entry.special);
      }
      return Register{it->second, uint8_t(wide ? 8 : 4)};
    }
  return std::nullopt;
}

void KernelBuilder::append(Insn insn, const Statement &statement) {
  insn.line = statement.line;
  if (!statement.guard.empty()) {
    auto guard = find(statement.guard);
    if (!guard || guard->bytes)
      failAt(statement.line, "expected a predicate, but got '", statement.guard,
             "'");
    insn.guard = int32_t(guard->slot);
    insn.guardNegated = statement.guardNegated;
  }
  kernel.code.push_back(insn);
  kernel.texts.push_back(statement.text);
}

void KernelBuilder::finish() {
  close();
  kernel.info.staticShared = staticShared;
  // Only a kernel with wgmma has marked registers.
  kernel.accumulators.resize(kernel.numSlots);
  for (Insn &insn : kernel.code)
    for (uint32_t i = 0; i < insn.numDefs; ++i)
      if (kernel.accumulators[kernel.slots[insn.defs + i]])
        insn.flags |= WritesAccumulator;
  orderLanes(kernel);
}

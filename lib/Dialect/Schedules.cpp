// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The attribute that says how a kernel goes through a sparse product.

#include "bsr/Dialect/Schedules.h"
#include "bsr/Dialect/Attributes.h"

using namespace mlir;
using namespace mlir::bsr;

/// The names of walks, in their order.
static constexpr StringRef walkNames[] = {
    "gather", "ordered_gather", "scatter", "single_weights", "outer", "inner"};

StringRef bsr::stringifyWalk(Walk walk) {
  return walkNames[static_cast<size_t>(walk)];
}

/// Entry `name` of `schedule`, if that is an integer of 64 bits.
static std::optional<int64_t> getNumber(DictionaryAttr schedule,
                                        StringRef name) {
  auto number = schedule.getAs<IntegerAttr>(name);
  if (!number || !number.getType().isSignlessInteger(64))
    return std::nullopt;
  return number.getInt();
}

/// The walk that `schedule` names, if there is one of this name.
static std::optional<Walk> getWalk(DictionaryAttr schedule) {
  auto text = schedule.getAs<StringAttr>("walk");
  const auto *found =
      text ? llvm::find(walkNames, text.getValue()) : std::end(walkNames);
  if (found == std::end(walkNames))
    return std::nullopt;
  return static_cast<Walk>(found - std::begin(walkNames));
}

bool ProductSchedule::isValid(Attribute attr) {
  auto schedule = dyn_cast<DictionaryAttr>(attr);
  std::optional<Walk> walk = schedule ? getWalk(schedule) : std::nullopt;
  if (!walk)
    return false;
  bool gathers = walk == Walk::Gather || walk == Walk::OrderedGather;
  return llvm::all_of(schedule, [&](NamedAttribute entry) {
    if (entry.getName() == "walk")
      return true;
    std::optional<int64_t> number = getNumber(schedule, entry.getName());
    if (!number || !gathers)
      return false;
    if (entry.getName() == "ahead")
      return *number >= 0 && *number <= maxAhead;
    return (entry.getName() == "rows" || entry.getName() == "panels") &&
           *number >= 1;
  });
}

ProductSchedule ProductSchedule::get(Operation *op) {
  DictionaryAttr attr = attrs::schedule.get(op);
  if (!attr)
    return {};
  return {getWalk(attr), getNumber(attr, "rows"), getNumber(attr, "panels"),
          getNumber(attr, "ahead")};
}

DictionaryAttr ProductSchedule::getAttr(MLIRContext *context) const {
  Builder b(context);
  NamedAttrList entries;
  entries.set("walk", b.getStringAttr(stringifyWalk(*walk)));
  auto add = [&](StringRef name, std::optional<int64_t> number) {
    if (number)
      entries.set(name, b.getI64IntegerAttr(*number));
  };
  add("rows", rows);
  add("panels", panels);
  add("ahead", ahead);
  return entries.getDictionary(context);
}

LogicalResult bsr::verifySchedule(Operation *op) {
  if (!attrs::schedule.isOn(op))
    return success();
  auto *verifier =
      op->getDialect()->getRegisteredInterface<ScheduleVerifierInterface>();
  return success(!verifier || succeeded(verifier->verifySchedule(op)));
}

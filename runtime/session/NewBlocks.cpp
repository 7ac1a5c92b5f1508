// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What blocks begin with that an update of a pattern regrows.

#include "Session.h"
#include "base/Element.h"
#include "base/Status.h"
#include "pattern/BlockNorm.h"
#include <algorithm>
#include <cmath>

using namespace sparse_opt;

static bool isFloat(bsr_type type) { return type <= BSR_F64; }

/// `value` as an element of `type`, as often as eight bytes hold it.
static uint64_t repeated(bsr_type type, double value) {
  uint64_t bits = 0;
  for (int64_t i = 0; i < 8 / bsr_type_bytes(type); ++i)
    storeElement(type, &bits, i, value);
  return bits;
}

/// Over how many steps the updates of a new block rise, where `buffer` counts
/// these; else 0.
static int64_t lengthOfRamp(const Buffer &buffer) {
  if (buffer.role != "count")
    return 0;
  auto rule = parseInitRule(buffer.init, buffer.type);
  bool isRamp = rule && rule->kind == InitRule::Constant && rule->argument > 1;
  return isRamp ? int64_t(rule->argument) : 0;
}

uint64_t bsr_session::bitsOfNew(const Pattern &pattern, int32_t values) const {
  const Buffer &buffer = manifest().buffers[values];
  auto rule = parseInitRule(buffer.init, buffer.type);
  if (values == pattern.weight || !rule || rule->kind != InitRule::Constant)
    return 0;
  if (lengthOfRamp(buffer)) // blocks of the first pattern are at its end
    return 0;
  return repeated(buffer.type, rule->argument);
}

bsr_new_state bsr_session::stateOfNew(int64_t index, int32_t values) const {
  const Buffer &buffer = manifest().buffers[values];
  bool isState = values != manifest().patterns[index].weight &&
                 buffer.role != "param" && buffer.role != "count" &&
                 isFloat(buffer.type);
  return isState ? newBlocks[index].state : BSR_STATE_FIRST;
}

void bsr_session::setNewBlocks(int64_t index, bsr_new_blocks start) {
  requireDynamic(index);
  const Pattern &pattern = manifest().patterns[index];
  auto refuse = [&](const auto &...parts) {
    fail(BSR_INVALID_ARGUMENT, parts..., " for pattern '", pattern.name, "'");
  };
  if (int32_t values = numberOf(start.values);
      values < 0 || values > BSR_VALUES_RANDOM)
    refuse("expected first values from 0 to ", int(BSR_VALUES_RANDOM),
           ", but got ", values);
  if (int32_t state = numberOf(start.state);
      state < 0 || state > BSR_STATE_KEPT)
    refuse("expected first state from 0 to ", int(BSR_STATE_KEPT), ", but got ",
           state);
  if (!(start.std >= 0 && std::isfinite(start.std)))
    refuse("expected a standard deviation of at least 0, but got ", start.std);
  bool hasSteps = false;
  int64_t ramp = 0;
  for (int32_t values : pattern.values)
    if (const Buffer &buffer = manifest().buffers[values];
        int64_t length = lengthOfRamp(buffer))
      ramp = length;
    else
      hasSteps |= buffer.role == "count";
  if (start.state != BSR_STATE_FIRST && hasSteps)
    refuse("expected new_state first in a step that was compiled with "
           "--block-steps, which counts from it, but got ",
           start.state == BSR_STATE_MEAN ? "mean" : "kept");
  if (start.own_steps && !hasSteps)
    refuse("expected a step compiled with --block-steps for new_step block, "
           "but got one without");
  if (start.ramp && start.ramp != ramp)
    refuse("expected a step compiled with --block-ramp=", start.ramp,
           " for that new_ramp, but got one with --block-ramp=", ramp);
  if (start.values == BSR_VALUES_RANDOM && start.std == 0) {
    const Buffer &weight = manifest().buffers[pattern.weight];
    auto rule = parseInitRule(weight.init, weight.type);
    if (!rule || rule->kind != InitRule::Normal)
      refuse("expected a standard deviation (new_std) of the random values of "
             "new blocks, but got a weight that does not begin by normal(s)");
    start.std = rule->argument;
  }
  newBlocks[index] = start;
  for (int32_t values : pattern.values)
    if (isShard(manifest().buffers[values]) &&
        stateOfNew(index, values) == BSR_STATE_MEAN) {
      newBlocks[index] = {};
      refuse("expected state that is whole on each process for new_state mean, "
             "but got shards of '",
             manifest().buffers[values].name, "'");
    }
}

/// The mean of buffer `values` over the blocks of `view` whose slots `isNew`
/// does not have; nothing if there are none.
std::optional<double> bsr_session::meanOfKept(int64_t index, int32_t values,
                                              const uint64_t *isNew) const {
  const Pattern &pattern = manifest().patterns[index];
  const Buffer &buffer = manifest().buffers[values];
  int64_t size = buffer.elements / pattern.slots, blocks = 0;
  std::vector<char> copy;
  const void *data = readBuffer(values, copy);
  bsr_pattern_view own = view(index);
  double sum = 0;
  for (int64_t k = 0; k < own.blocks; ++k) {
    int64_t slot = own.slot[k];
    if (isNew[slot / 64] >> (slot % 64) & 1)
      continue;
    ++blocks;
    for (int64_t i = 0; i < size; ++i)
      sum += loadElement(buffer.type, data, slot * size + i);
  }
  if (!blocks)
    return std::nullopt;
  return sum / double(blocks * size);
}

void bsr_session::drawValues(int64_t index, const PatternScratch &own,
                             int64_t count) const {
  const Pattern &pattern = manifest().patterns[index];
  const Buffer &buffer = manifest().buffers[pattern.weight];
  int64_t size = pattern.blockRows * pattern.blockCols;
  int64_t bytes = size * bsr_type_bytes(buffer.type);
  std::vector<char> block(static_cast<size_t>(bytes));
  RandomStream random(counters.seed, "regrown", pattern.name);
  auto update = uint64_t(counters.pattern_updates + 1);
  for (int64_t k = 0; k < count; ++k) {
    uint64_t first =
        (update * uint64_t(pattern.allBlocks()) + uint64_t(own.regrown[k])) *
        uint64_t(size);
    for (int64_t i = 0; i < size; ++i)
      storeElement(buffer.type, block.data(), i,
                   newBlocks[index].std * random.normal(first + uint64_t(i)));
    device.write(static_cast<char *>(buffers[pattern.weight]) +
                     own.freed[k] * bytes,
                 block.data(), bytes);
  }
}

void bsr_session::resetSlots(int64_t index, const PatternChange &change,
                             PatternScratch &own) const {
  const Pattern &pattern = manifest().patterns[index];
  std::fill_n(own.marks, pattern.slots / 64 + 1, 0);
  for (int64_t k = 0; k < change.regrown; ++k)
    own.marks[own.freed[k] / 64] |= uint64_t(1) << (own.freed[k] % 64);
  for (int32_t values : pattern.values) {
    uint64_t bits = bitsOfNew(pattern, values);
    bsr_new_state state = stateOfNew(index, values);
    if (state == BSR_STATE_MEAN)
      if (auto mean = meanOfKept(index, values, own.marks))
        bits = repeated(manifest().buffers[values].type, *mean);
    // Slots behind those of pruned blocks were free.
    int64_t kept =
        state == BSR_STATE_KEPT ? std::min(change.pruned, change.regrown) : 0;
    fillSlots(index, values, own.freed + kept, change.regrown - kept, bits);
    if (change.pruned > change.regrown)
      fillSlots(index, values, own.freed + change.regrown,
                change.pruned - change.regrown, 0);
  }
  if (newBlocks[index].values == BSR_VALUES_RANDOM)
    drawValues(index, own, change.regrown);
}

bsr_status bsr_session_set_new_blocks(bsr_session *session, int64_t pattern,
                                      const bsr_new_blocks *start) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(start, "start");
    session->setNewBlocks(pattern, *start);
  });
}

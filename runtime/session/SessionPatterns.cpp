// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The patterns of a training run: made, set and checked.

#include "Session.h"
#include "base/Element.h"
#include "base/Status.h"
#include <algorithm>

using namespace sparse_opt;

PatternIndices bsr_session::indices(int64_t pattern) const {
  auto at = [&](bsr_kind kind) {
    int32_t buffer = manifest().patterns[pattern].indices[kind - BSR_ROW_PTR];
    return hostIndices[buffer];
  };
  return {at(BSR_ROW_PTR), at(BSR_COL_IDX), at(BSR_SLOT),
          at(BSR_COL_PTR), at(BSR_ROW_IDX), at(BSR_SLOT_T)};
}

void bsr_session::storeIndices(int64_t pattern) {
  const Pattern &known = manifest().patterns[pattern];
  if (device.isHost() || known.isStatic)
    return;
  for (int32_t index : known.indices)
    device.write(buffers[index], hostIndices[index],
                 manifest().buffers[index].bytes);
}

bsr_pattern_view bsr_session::view(int64_t pattern) const {
  if (const Pattern &known = manifest().patterns[pattern]; known.isStatic) {
    auto at = [&](bsr_kind kind) {
      return known.arrays[kind - BSR_ROW_PTR].data();
    };
    return {known.slots,     at(BSR_ROW_PTR), at(BSR_COL_IDX), at(BSR_SLOT),
            at(BSR_COL_PTR), at(BSR_ROW_IDX), at(BSR_SLOT_T)};
  }
  PatternIndices own = indices(pattern);
  int32_t blocks = own.rowPtr[manifest().patterns[pattern].gridRows()];
  return {blocks,     own.rowPtr, own.colIdx, own.slot,
          own.colPtr, own.rowIdx, own.slotT};
}

void bsr_session::requireDynamic(int64_t pattern) const {
  requireIndex(pattern, int64_t(manifest().patterns.size()), "patterns");
  requireOwner();
  if (manifest().patterns[pattern].isStatic)
    fail(BSR_INVALID_ARGUMENT, "expected a pattern that can change, but got '",
         manifest().patterns[pattern].name, "', which is static");
}

void bsr_session::patternsChanged() {
  ++patternVersion;
  hasScores = false;
}

void bsr_session::fillSlots(int64_t index, int32_t values, const int32_t *slots,
                            int64_t count, uint64_t bits) const {
  const Buffer &buffer = manifest().buffers[values];
  int64_t bytes = buffer.wholeBytes / manifest().patterns[index].slots;
  if (!isShard(buffer)) {
    device.fillSlots(buffers[values], bytes, slots, count, bits, room);
    return;
  }
  std::vector<int32_t> own;
  for (int64_t i = 0; i < count; ++i)
    if (int64_t slot = slots[i] - shardOffset(values) / bytes;
        slot >= 0 && slot < buffer.shape[0])
      own.push_back(int32_t(slot));
  device.fillSlots(buffers[values], bytes, own.data(), int64_t(own.size()),
                   bits, room);
}

void bsr_session::fillSlots(int64_t index, const int32_t *slots, int64_t count,
                            bool isNew) const {
  const Pattern &pattern = manifest().patterns[index];
  for (int32_t values : pattern.values)
    fillSlots(index, values, slots, count,
              isNew ? bitsOfNew(pattern, values) : 0);
}

void bsr_session::zeroUnusedSlots(int64_t index) const {
  const Pattern &pattern = manifest().patterns[index];
  bsr_pattern_view own = view(index);
  std::fill_n(scratch.marks, pattern.slots / 64 + 1, 0);
  for (int64_t k = 0; k < own.blocks; ++k)
    scratch.marks[own.slot[k] / 64] |= uint64_t(1) << (own.slot[k] % 64);
  int64_t unused = 0;
  for (int64_t slot = 0; slot < pattern.slots; ++slot)
    if (!(scratch.marks[slot / 64] >> (slot % 64) & 1))
      scratch.freed[unused++] = int32_t(slot);
  fillSlots(index, scratch.freed, unused, /*isNew=*/false);
}

void bsr_session::requireBlocks(const Pattern &pattern, int64_t &blocks) const {
  if (blocks == BSR_MOST_BLOCKS)
    blocks = pattern.mostBlocks();
  if (blocks < 0 || blocks > pattern.mostBlocks())
    fail(BSR_INVALID_ARGUMENT, "expected the blocks of pattern '", pattern.name,
         "' to be in [0, ", pattern.mostBlocks(), "], but got ", blocks);
}

void bsr_session::makePattern(int64_t index, int64_t blocks) {
  const Pattern &pattern = manifest().patterns[index];
  requireBlocks(pattern, blocks);
  if (pattern.isStatic)
    return;
  sparse_opt::makePattern(pattern, blocks, counters.seed, indices(index),
                          scratch);
  zeroUnusedSlots(index);
  patternMade(index);
}

void bsr_session::requirePattern(int64_t index,
                                 const bsr_pattern_view &view) const {
  requireDynamic(index);
  checkPattern(manifest().patterns[index], view, scratch);
}

void bsr_session::setPattern(int64_t index, const bsr_pattern_view &view) {
  requirePattern(index, view);
  const Pattern &pattern = manifest().patterns[index];
  std::vector<bool> wasUsed(size_t(pattern.slots), !hasPattern[index]);
  bsr_pattern_view old = this->view(index);
  for (int64_t k = 0; k < old.blocks; ++k)
    wasUsed[size_t(old.slot[k])] = true;
  assignPattern(pattern, view, indices(index));
  zeroUnusedSlots(index);
  bsr_pattern_view own = this->view(index);
  int64_t numNew = 0;
  for (int64_t k = 0; k < own.blocks; ++k)
    if (!wasUsed[size_t(own.slot[k])])
      scratch.freed[numNew++] = own.slot[k];
  fillSlots(index, scratch.freed, numNew, /*isNew=*/true);
  patternMade(index);
}

void bsr_session::checkPatterns() const {
  for (size_t i = 0; i < manifest().patterns.size(); ++i)
    if (!manifest().patterns[i].isStatic)
      checkPattern(manifest().patterns[i], view(int64_t(i)), scratch);
}

bsr_status bsr_session_make_pattern(bsr_session *session, int64_t pattern,
                                    int64_t blocks) {
  return guarded([&] {
    requireArgument(session, "session");
    requireIndex(pattern, int64_t(session->hasPattern.size()), "patterns");
    session->requireOwner();
    session->makePattern(pattern, blocks);
  });
}

bsr_status bsr_session_set_pattern(bsr_session *session, int64_t pattern,
                                   const bsr_pattern_view *view) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(view, "view");
    session->setPattern(pattern, *view);
  });
}

bsr_status bsr_session_check_pattern(const bsr_session *session,
                                     int64_t pattern,
                                     const bsr_pattern_view *view) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(view, "view");
    session->requirePattern(pattern, *view);
  });
}

bsr_status bsr_session_get_pattern(const bsr_session *session, int64_t pattern,
                                   bsr_pattern_view *view) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(view, "view");
    requireIndex(pattern, int64_t(session->hasPattern.size()), "patterns");
    *view = session->view(pattern);
  });
}

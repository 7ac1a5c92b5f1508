// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory that an update of patterns on a device works in.

#include "UpdateScratch.h"
#include <algorithm>

using namespace sparse_opt;

/// Rooms that are no larger are not divided.
static constexpr int64_t smallRoom = int64_t(32) << 20;

int64_t sparse_opt::tableBytes(const Pattern &pattern) {
  return int64_t(sizeof(UpdateRow) + sizeof(UpdateResult) +
                 pattern.values.size() * sizeof(FillRow));
}

void sparse_opt::cutWork(const Pattern &pattern, int64_t blocks, int64_t count,
                         UpdateRow &row, ScratchCursor &cursor) {
  int64_t groups =
      UpdateRow::groupsOfRows(pattern.gridRows(), pattern.gridCols());
  int64_t marks = pattern.scores < 0 ? 0 : pattern.allBlocks() / 32 + 1;
  row.norms = cursor.cut(blocks, sizeof(double));
  row.stored = cursor.cut(blocks, sizeof(uint64_t));
  row.kept = cursor.cut(blocks, sizeof(uint64_t));
  row.keptSlots = cursor.cut(blocks, sizeof(uint32_t));
  row.marks = cursor.cut(std::max(groups, marks), sizeof(uint32_t));
  row.before = cursor.cut(groups, sizeof(uint32_t));
  row.chosen = cursor.cut(count, sizeof(uint64_t));
  row.freed = cursor.cut(count, sizeof(uint32_t));
}

void sparse_opt::cutFlags(int64_t blocks, UpdateRow &row,
                          ScratchCursor &cursor) {
  row.flags = cursor.cut(UpdateRow::wordsOfFlags(blocks), sizeof(uint32_t));
}

void sparse_opt::cutLists(int64_t count, UpdateRow &row,
                          ScratchCursor &cursor) {
  row.pruned = cursor.cut(count, sizeof(uint32_t));
  row.fresh = cursor.cut(count, sizeof(uint64_t));
}

int64_t sparse_opt::roomForUpdate(const Pattern &pattern) {
  if (pattern.isStatic)
    return 0;
  ScratchCursor cursor;
  UpdateRow row;
  // Tables begin at places of their own.
  cursor.cut(tableBytes(pattern) + 3 * 64, 1);
  cutWork(pattern, pattern.slots, pattern.slots, row, cursor);
  cutLists(pattern.slots, row, cursor);
  return cursor.used;
}

int64_t sparse_opt::roomForUpdates(const Manifest &manifest) {
  int64_t all = 0, most = 0;
  ScratchCursor flags;
  for (const Pattern &pattern : manifest.patterns) {
    int64_t room = roomForUpdate(pattern);
    all += room;
    most = std::max(most, room);
    UpdateRow row;
    if (!pattern.isStatic)
      cutFlags(pattern.slots, row, flags);
  }
  return flags.used + std::max(most, std::min(all, smallRoom));
}

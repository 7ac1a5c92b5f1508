// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prepares the tables of the kernels that update patterns, and reads the
// results.

#include "DeviceUpdate.h"
#include "UpdateScratch.h"
#include "base/Status.h"
#include "pattern/BlockNorm.h"
#include <algorithm>

using namespace sparse_opt;

DeviceUpdate::DeviceUpdate(bsr_session &session,
                           const bsr_pattern_update *updates)
    : session(session), updates(updates) {
  const std::vector<Pattern> &patterns = session.manifest().patterns;
  ScratchCursor flags(session.room);
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (patterns[i].isStatic || updates[i].method == BSR_STATIC)
      continue;
    Task task = {};
    task.pattern = int64_t(i);
    task.row = describeUpdate(patterns[i], updates[i],
                              session.view(int64_t(i)).blocks);
    cutFlags(task.row.blocks, task.row, flags);
    tasks.push_back(std::move(task));
  }
  flagBytes = flags.used;
  int64_t used = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    int64_t room = roomForUpdate(patternOf(tasks[i]));
    if (groups.empty() || flagBytes + used + room > session.roomBytes) {
      groups.push_back({i, i});
      used = 0;
    }
    used += room;
    ++groups.back().end;
  }
  // Norms of one kind are one launch.
  for (const Group &group : groups)
    std::sort(tasks.begin() + int64_t(group.first),
              tasks.begin() + int64_t(group.end),
              [&](const Task &a, const Task &b) {
                return std::pair(normsOf(a), a.pattern) <
                       std::pair(normsOf(b), b.pattern);
              });
}

std::string DeviceUpdate::normsOf(const Task &task) const {
  return nameOfNorms(
      ruleOf(task).norm,
      session.manifest().buffers[size_t(patternOf(task).weight)].type);
}

void DeviceUpdate::place(const Group &group) {
  auto size = int64_t(group.end - group.first);
  ScratchCursor cursor(static_cast<char *>(session.room) + flagBytes);
  tableOf = reinterpret_cast<char *>(cursor.cut(size, sizeof(UpdateRow)));
  int64_t fillRows = 0;
  for (size_t i = group.first; i < group.end; ++i)
    fillRows += int64_t(patternOf(tasks[i]).values.size());
  fillsOf = reinterpret_cast<char *>(cursor.cut(fillRows, sizeof(FillRow)));
  answersOf = reinterpret_cast<char *>(cursor.cut(size, sizeof(UpdateResult)));
  auto addressOf = [](const void *memory) {
    return reinterpret_cast<uint64_t>(memory);
  };
  for (size_t i = group.first; i < group.end; ++i) {
    Task &task = tasks[i];
    cutLists(task.row.count, task.row, cursor);
    task.row.result =
        addressOf(answersOf) + (i - group.first) * sizeof(UpdateResult);
  }
  answerBytes = int64_t(reinterpret_cast<char *>(cursor.cut(0, 1)) - answersOf);
  for (size_t i = group.first; i < group.end; ++i) {
    Task &task = tasks[i];
    UpdateRow &row = task.row;
    const Pattern &pattern = patternOf(task);
    const bsr_pattern_update &rule = ruleOf(task);
    cutWork(pattern, row.blocks, row.count, row, cursor);
    auto buffer = [&](int64_t index) {
      return addressOf(session.buffers[size_t(index)]);
    };
    auto indices = [&](bsr_kind kind) {
      return buffer(pattern.indices[kind - BSR_ROW_PTR]);
    };
    row.values = buffer(pattern.weight);
    row.rowPtr = indices(BSR_ROW_PTR);
    row.colIdx = indices(BSR_COL_IDX);
    row.slot = indices(BSR_SLOT);
    row.colPtr = indices(BSR_COL_PTR);
    row.rowIdx = indices(BSR_ROW_IDX);
    row.slotT = indices(BSR_SLOT_T);
    row.scores =
        bsr_method_reads_scores(rule.method) ? buffer(pattern.scores) : 0;
    if (!row.returns)
      row.chosen = row.fresh;
  }
  std::vector<UpdateRow> rows;
  for (size_t i = group.first; i < group.end; ++i)
    rows.push_back(tasks[i].row);
  session.device.write(tableOf, rows.data(), size * int64_t(sizeof(UpdateRow)));
  std::vector<UpdateResult> results(
      rows.size(), UpdateResult{0, 0, ~uint64_t(0), ~uint64_t(0)});
  session.device.write(answersOf, results.data(),
                       size * int64_t(sizeof(UpdateResult)));
}

void DeviceUpdate::startRanking(const Group &group) {
  place(group);
  Device &device = session.device;
  for (size_t first = group.first, end; first < group.end; first = end) {
    int64_t most = 0;
    for (end = first;
         end < group.end && normsOf(tasks[end]) == normsOf(tasks[first]); ++end)
      most = std::max<int64_t>(most, tasks[end].row.blocks);
    device.runPatternKernel(
        normsOf(tasks[first]), blocksOfNorms(most), int64_t(end - first),
        patternThreads, tableOf + (first - group.first) * sizeof(UpdateRow));
  }
  device.runPatternKernel(pruneKernel, int64_t(group.end - group.first), 1,
                          updateThreads, tableOf);
}

void DeviceUpdate::start() {
  if (!groups.empty())
    startRanking(groups.front());
}

void DeviceUpdate::readResults(const Group &group) {
  size_t size = group.end - group.first;
  std::vector<UpdateResult> results(size);
  session.device.read(results.data(), answersOf,
                      int64_t(size * sizeof(UpdateResult)));
  for (size_t i = 0; i < size; ++i)
    tasks[group.first + i].done = results[i];
}

void DeviceUpdate::requireNumbers() {
  for (const Group &group : groups) {
    if (&group != &groups.front())
      startRanking(group);
    readResults(group);
  }
  // The first pattern that has one, whatever the order of tasks.
  const Task *failed = nullptr;
  for (const Task &task : tasks)
    if (~(task.done.nanBlock & task.done.nanScore) &&
        (!failed || task.pattern < failed->pattern))
      failed = &task;
  if (!failed)
    return;
  const Pattern &pattern = patternOf(*failed);
  if (~failed->done.nanBlock)
    refuseNaN(pattern, session.indices(failed->pattern),
              int64_t(failed->done.nanBlock));
  refuseNaNScore(pattern, int64_t(failed->done.nanScore));
}

void DeviceUpdate::writeRanks(const Group &group) {
  std::vector<int64_t> ranks;
  for (size_t i = group.first; i < group.end; ++i) {
    const Task &task = tasks[i];
    if (task.row.regrowth != Regrowth::Ranks)
      continue;
    ranks.resize(task.row.count);
    drawRanks(patternOf(task), task.row, session.counters.seed,
              session.counters.pattern_updates + 1, session.scratch.marks,
              ranks.data());
    session.device.write(reinterpret_cast<void *>(task.row.chosen),
                         ranks.data(), int64_t(ranks.size() * sizeof(int64_t)));
  }
}

void DeviceUpdate::startFills(const Group &group) {
  std::vector<FillRow> rows;
  int64_t most = 0;
  for (size_t i = group.first; i < group.end; ++i) {
    const Task &task = tasks[i];
    const Pattern &pattern = patternOf(task);
    for (int32_t values : pattern.values) {
      // The host fills what is left over of these.
      if (session.stateOfNew(task.pattern, values) == BSR_STATE_KEPT)
        continue;
      const Buffer &buffer = session.manifest().buffers[size_t(values)];
      int64_t bytes = buffer.wholeBytes / pattern.slots;
      int64_t first = session.shardOffset(values) / bytes;
      rows.push_back(
          {reinterpret_cast<uint64_t>(session.buffers[size_t(values)]),
           task.row.freed, task.row.result,
           task.row.result + offsetof(UpdateResult, numRegrown),
           uint64_t(bytes), uint64_t(first), uint64_t(first + buffer.shape[0]),
           session.bitsOfNew(pattern, values)});
      most = std::max(most, blocksOfFills(task.row.count, bytes));
    }
  }
  session.device.write(fillsOf, rows.data(),
                       int64_t(rows.size() * sizeof(FillRow)));
  session.device.runPatternKernel(fillKernel, most, int64_t(rows.size()),
                                  patternThreads, fillsOf);
}

void DeviceUpdate::readAnswers(const Group &group) {
  std::vector<char> answers(static_cast<size_t>(answerBytes));
  session.device.read(answers.data(), answersOf, answerBytes);
  auto at = [&](uint64_t place) {
    return answers.data() + (reinterpret_cast<char *>(place) - answersOf);
  };
  for (size_t i = group.first; i < group.end; ++i) {
    Task &task = tasks[i];
    std::memcpy(&task.done, at(task.row.result), sizeof task.done);
    auto *pruned = reinterpret_cast<const int32_t *>(at(task.row.pruned));
    auto *fresh = reinterpret_cast<const int64_t *>(at(task.row.fresh));
    task.places.assign(pruned, pruned + task.done.numPruned);
    task.numbers.assign(fresh, fresh + task.done.numRegrown);
  }
}

void DeviceUpdate::run() {
  for (const Group &group : groups) {
    // One group is there still; of others the flags are.
    if (groups.size() > 1)
      place(group);
    writeRanks(group);
    session.device.runPatternKernel(updateKernel,
                                    int64_t(group.end - group.first), 1,
                                    updateThreads, tableOf);
    startFills(group);
    readAnswers(group);
  }
}

PatternChange DeviceUpdate::follow(int64_t index,
                                   PatternScratch &scratch) const {
  const Task &task =
      *std::find_if(tasks.begin(), tasks.end(),
                    [&](const Task &task) { return task.pattern == index; });
  return followDevice(patternOf(task), task.places.data(),
                      int64_t(task.places.size()), task.numbers.data(),
                      int64_t(task.numbers.size()), session.indices(index),
                      scratch);
}

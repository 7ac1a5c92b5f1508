// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An update of patterns that a device does by itself: norms, choice, views and
// zeros are its own. The host supplies random ranks, and reads back which
// blocks were chosen.

#ifndef BSR_RUNTIME_SESSION_DEVICEUPDATE_H
#define BSR_RUNTIME_SESSION_DEVICEUPDATE_H

#include "Session.h"
#include "support/PatternKernels.h"

namespace sparse_opt {

class DeviceUpdate {
public:
  /// Of the patterns that `updates`, one for each, change.
  DeviceUpdate(bsr_session &session, const bsr_pattern_update *updates);

  /// Starts ranking the blocks of the first patterns.
  void start();
  /// Fails if a norm, or a score that matters, is NaN. Nothing has changed
  /// then.
  void requireNumbers();
  /// Changes the patterns on the device.
  void run();
  /// Makes the host's copy of pattern `index` that of the device.
  PatternChange follow(int64_t index, PatternScratch &scratch) const;

private:
  /// A pattern, and where its memory is in the room.
  struct Task {
    int64_t pattern;
    UpdateRow row;
    UpdateResult done;
    std::vector<int32_t> places; // what the device has pruned, and regrown
    std::vector<int64_t> numbers;
  };
  /// Those of a group: tasks from `first` to `end`.
  struct Group {
    size_t first, end;
  };

  const Pattern &patternOf(const Task &task) const {
    return session.manifest().patterns[size_t(task.pattern)];
  }
  const bsr_pattern_update &ruleOf(const Task &task) const {
    return updates[task.pattern];
  }
  /// The kernel of its norms.
  std::string normsOf(const Task &task) const;
  /// Gives the tasks of `group` their memory, and writes their rows.
  void place(const Group &group);
  /// Starts the norms of a group, and the choice of what it prunes.
  void startRanking(const Group &group);
  void readResults(const Group &group);
  void writeRanks(const Group &group);
  void startFills(const Group &group);
  void readAnswers(const Group &group);

  bsr_session &session;
  const bsr_pattern_update *updates;
  std::vector<Task> tasks;
  std::vector<Group> groups;
  int64_t flagBytes = 0; // at the start of the room, of all tasks
  // Of the group that is in the room: its rows, those of zeros, and what the
  // host reads.
  char *tableOf = nullptr, *fillsOf = nullptr, *answersOf = nullptr;
  int64_t answerBytes = 0;
};

} // namespace sparse_opt

#endif // BSR_RUNTIME_SESSION_DEVICEUPDATE_H

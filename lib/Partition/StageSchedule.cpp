// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a schedule of stages, to see when each works and waits.

#include "bsr/Partition/StagePlan.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::bsr;

SmallVector<StageTask> bsr::getTasks(unsigned stage, unsigned stages,
                                     int64_t microBatches, Schedule schedule) {
  int64_t first = microBatches; // forward before the first backward
  if (schedule == Schedule::OneForwardOneBackward)
    first = std::min<int64_t>(microBatches, stages - stage);
  SmallVector<StageTask> tasks;
  for (int64_t i = 0; i < first; ++i)
    tasks.push_back({i, true});
  for (int64_t i = 0; i < microBatches; ++i) {
    tasks.push_back({i, false});
    if (first + i < microBatches)
      tasks.push_back({first + i, true});
  }
  return tasks;
}

Timeline bsr::simulate(ArrayRef<StageCost> costs, int64_t microBatches,
                       Schedule schedule) {
  unsigned stages = costs.size();
  Timeline timeline;
  timeline.stages.resize(stages);
  SmallVector<SmallVector<StageTask>> orders;
  for (unsigned stage = 0; stage < stages; ++stage)
    orders.push_back(getTasks(stage, stages, microBatches, schedule));
  // When each stage is done with each micro-batch; negative: it is not.
  SmallVector<SmallVector<double>> forward(
      stages, SmallVector<double>(microBatches, -1)),
      backward(forward);
  SmallVector<double> now(stages, 0.0);
  for (bool goesOn = true; goesOn;) {
    goesOn = false;
    for (unsigned stage = 0; stage < stages; ++stage) {
      SmallVector<ScheduledTask> &done = timeline.stages[stage];
      while (done.size() < orders[stage].size()) {
        auto [microBatch, isForward] = orders[stage][done.size()];
        double ready = 0;
        if (isForward)
          ready = stage ? forward[stage - 1][microBatch] : 0;
        else
          ready = stage + 1 < stages ? backward[stage + 1][microBatch]
                                     : forward[stage][microBatch];
        if (ready < 0)
          break;
        double begin = std::max(now[stage], ready);
        now[stage] =
            begin + (isForward ? costs[stage].forward : costs[stage].backward);
        (isForward ? forward : backward)[stage][microBatch] = now[stage];
        done.push_back({begin, now[stage], microBatch, isForward});
        goesOn = true;
      }
    }
  }
  double last = 0, busy = 0;
  for (unsigned stage = 0; stage < stages; ++stage) {
    last = std::max(last, now[stage]);
    timeline.seconds =
        std::max(timeline.seconds, now[stage] + costs[stage].end);
    busy += (costs[stage].forward + costs[stage].backward) * microBatches;
  }
  timeline.bubbles = last > 0 ? 1 - busy / (last * stages) : 0;
  return timeline;
}

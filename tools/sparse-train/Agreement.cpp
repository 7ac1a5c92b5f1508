// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gathers signals and times of all processes.

#include "Agreement.h"
#include "StopSignal.h"

#include <algorithm>

using namespace sparse_opt::train;

Agreement::Agreement(const Ranks &ranks, double minutes)
    : ranks(ranks), minutes(minutes) {}

int64_t Agreement::stepsToNext(Clock::time_point now) const {
  if (ranks.size() == 1)
    return 1;
  constexpr std::chrono::duration<double> between(0.25);
  // The first steps may be slow ones.
  int64_t most = 2 * next;
  double fit = double(steps) * (between / (now - asked));
  return int64_t(std::clamp(fit, 1.0, double(most)));
}

Agreement::Decision Agreement::afterStep() {
  if (++steps < next)
    return {};
  Clock::time_point now = Clock::now();
  bool isLate =
      minutes > 0 &&
      now - saved >= std::chrono::duration<double, std::ratio<60>>(minutes);
  constexpr int64_t signals = 128; // more than there are
  std::vector<int64_t> all =
      ranks.gather(stopSignal() + signals * (isLate + 2 * stepsToNext(now)));
  Decision decision;
  for (int64_t each : all)
    if (!decision.signal)
      decision.signal = int(each % signals);
  decision.saves = all[0] / signals % 2;
  next = all[0] / signals / 2;
  steps = 0;
  asked = now;
  return decision;
}

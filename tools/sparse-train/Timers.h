// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the time of a step goes.

#ifndef BSR_TOOLS_SPARSETRAIN_TIMERS_H
#define BSR_TOOLS_SPARSETRAIN_TIMERS_H

#include "Session.h"

#include <optional>
#include <string>
#include <vector>

namespace sparse_opt::train {

/// Tables of what `step`, compiled with timers, took since it was loaded or its
/// timers were reset: by kind of work, then the kernels that took the most.
std::string describeTimers(const bsr_step *step);

/// A line about means over processes between two readings of counters, while
/// the timers of `step` counted: what they took and what the step waited for
/// them. The rest was hidden behind kernels.
std::string describeReductions(const bsr_step *step,
                               const bsr_communicator_counters &before,
                               const bsr_communicator_counters &after);

/// The share of the time of reductions that was hidden behind kernels; nothing
/// if they took none.
std::optional<double> hiddenShare(const bsr_communicator_counters &counters);

/// What a step, compiled with timers, takes: its optimizer, and everything
/// else, which is the forward and backward pass.
class PhaseTimes {
public:
  explicit PhaseTimes(const Session &session);

  /// False for a step without timers.
  bool known() const { return !isOptimizer.empty(); }
  /// Seconds since `start`.
  void start();
  double optimizer() const { return seconds(true) - before[true]; }
  double forwardBackward() const { return seconds(false) - before[false]; }

private:
  double seconds(bool ofOptimizer) const;

  const bsr_step *step;
  std::vector<bool> isOptimizer; // of each timer
  double before[2] = {};
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_TIMERS_H

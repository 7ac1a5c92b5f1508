// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the processes of a run decide together as it goes on.

#ifndef BSR_TOOLS_SPARSETRAIN_AGREEMENT_H
#define BSR_TOOLS_SPARSETRAIN_AGREEMENT_H

#include "Ranks.h"

#include <chrono>
#include <cstdint>

namespace sparse_opt::train {

/// Whether a run ends after a step since a process was asked to, and whether a
/// checkpoint is due since the last one was long ago.
///
/// Processes ask each other about four times a second, not after each step:
/// that would cost fast ones a message. After which step they ask next, rank 0
/// says when they do, so that all end with the same.
class Agreement {
public:
  /// A checkpoint is due every `minutes`, never if that is 0.
  Agreement(const Ranks &ranks, double minutes);

  struct Decision {
    int signal = 0; // that ends the run
    bool saves = false;
  };

  /// Called by all processes after each step.
  Decision afterStep();
  /// A checkpoint was saved.
  void hasSaved() { saved = Clock::now(); }

private:
  using Clock = std::chrono::steady_clock;

  /// How many steps are done until processes ask each other again.
  int64_t stepsToNext(Clock::time_point now) const;

  const Ranks &ranks;
  const double minutes;
  Clock::time_point saved = Clock::now(), asked = saved;
  int64_t steps = 0, next = 1; // since they asked; until they do
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_AGREEMENT_H

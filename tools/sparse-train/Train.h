// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A training run.

#ifndef BSR_TOOLS_SPARSETRAIN_TRAIN_H
#define BSR_TOOLS_SPARSETRAIN_TRAIN_H

#include "Config.h"
#include "Ranks.h"

namespace sparse_opt::train {

/// What to do with a run folder that holds a run.
enum class Existing {
  Refuse,
  Resume,
  ResumeChanged, // also if the configuration changed
  Overwrite
};

/// Trains as `config` says. The run folder receives
///
///     config.yaml                   the configuration, every key
///     checkpoint-<step>.safetensors the newest ones
///     summary.json                  at the end
///
/// and what a Tracker writes: metrics, the same for TensorBoard, pictures of
/// patterns, and on which machines it ran.
///
/// A resumed run goes on from its newest good checkpoint and is, bit for bit,
/// the run that was never interrupted.
///
/// With `timers`, the step is compiled with timers, and where the time of its
/// runs went, all but the first training step, is printed at the end. Of the
/// first `traceSteps` of these, which takes `timers`, the run folder also
/// receives trace-<rank>.json.
///
/// SIGTERM, SIGINT and SIGHUP end the run with the step that is being trained,
/// for which a checkpoint is written; a second one ends it at once. What cannot
/// be printed does not end it. Returns the exit status: 0, or 128 and the
/// number of the signal.
int runTraining(const Config &config, Existing existing, bool timers,
                int64_t traceSteps, const Ranks &ranks);

/// Does all that such a run does up to its first step, runs that step twice on
/// one batch, and prints which weights are sparse, the memory that is taken and
/// how long the second run took. No run folder is made, read or written.
void runDry(const Config &config, const Ranks &ranks);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_TRAIN_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each of several processes trains: a stage of a step, on a share of the
// micro-batches.

#ifndef BSR_TOOLS_SPARSETRAIN_STAGES_H
#define BSR_TOOLS_SPARSETRAIN_STAGES_H

#include "Config.h"
#include "Ranks.h"
#include "Session.h"

#include <string>
#include <vector>

namespace sparse_opt::train {

/// Rank r of a step in s stages has stage r % s, as one of several that have
/// it, the replica r / s. Without stages the step is one.
struct Place {
  /// Fails where processes are no multiple of the stages, or micro-batches none
  /// of what the processes run at a time.
  Place(const Config &config, const Ranks &ranks);

  /// The number in a training step of the `own`-th micro-batch that this
  /// process runs.
  int64_t microBatch(int64_t own) const { return own * replicas + replica; }

  int64_t stages, stage, replicas, replica;
};

/// A weight with a pattern, of any stage.
struct WeightShape {
  std::string name;
  int64_t rows, cols, extents;
  bool isStatic, isFrozen;
  int64_t stage; ///< the first that has it
};

/// The weights with patterns of all stages, in the order of these; what several
/// stages have comes once.
std::vector<WeightShape> listWeights(const Session &session, const Ranks &ranks,
                                     const Place &place);

/// The step for batches of one length, and its memory.
struct SessionOfLength {
  int64_t length;
  Session session;
};

/// The sessions that `config` asks for, one for each length of its step. The
/// first, of the longest, has the state, which the others train, too. On device
/// "auto" they are a GPU's, or, with the reason why not, the processor's:
/// always where processes train together. Fails where steps do not train the
/// same state.
std::vector<SessionOfLength> openSessions(const Config &config,
                                          const Ranks &ranks);

/// How often a process runs the step of `session` in a training step; fails if
/// that is no whole number.
int64_t countRuns(const Config &config, const Place &place,
                  const Session &session);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_STAGES_H

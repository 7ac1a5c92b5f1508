// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Carries out the section `sparsity` of a configuration.

#ifndef BSR_TOOLS_SPARSETRAIN_PATTERNUPDATES_H
#define BSR_TOOLS_SPARSETRAIN_PATTERNUPDATES_H

#include "Session.h"
#include "Sparsity.h"
#include "Stages.h"

#include <optional>

namespace bsr::train {

/// What happens to the patterns of a session in a run of `steps` steps.
class PatternUpdates {
public:
  /// Gives every pattern to its group. Fails where a group has none of
  /// `allWeights`, those of all stages, or wants what the step was not compiled
  /// for.
  PatternUpdates(const std::vector<SparsityGroup> &groups, int64_t steps,
                 const Session &session,
                 const std::vector<WeightShape> &allWeights);

  /// Makes the first patterns of an initialized session.
  void initialize(Session &session) const;

  /// Whether that gives the weight called `name` its values, too.
  bool setValues(const std::string &name) const;
  /// Whether there are patterns that could change and never do.
  bool leavePatterns() const;

  /// Whether patterns are updated after `step` steps: of this process, or,
  /// `anywhere`, also those of other stages; and whether by scores.
  bool areDue(int64_t step, bool anywhere) const;
  /// Of each pattern, whether it is.
  std::vector<bool> due(int64_t step) const;
  bool needScores(int64_t step) const;

  /// Updates the patterns after `step` steps. Returns the largest share of
  /// blocks to replace, or nothing where blocks are only pruned.
  std::optional<double> update(Session &session, int64_t step) const;

private:
  /// A pattern with its group.
  struct Weight {
    int64_t pattern; // index
    bsr_pattern_info info;
    const SparsityGroup *group;
    double density;      // asked for; 0 for what the step was compiled with
    int64_t firstBlocks; // or BSR_MOST_BLOCKS

    int64_t allBlocks() const;
    int64_t mostBlocks() const;
  };

  void distributeDensities(const SparsityGroup &group,
                           const std::vector<WeightShape> &members);
  void requireSlots(const std::vector<SparsityGroup> &groups) const;
  double endOf(const SparsityGroup &group) const;
  double lengthOf(const SparsityGroup &group) const;
  bool isDue(const SparsityGroup &group, int64_t step) const;
  double dropOf(const SparsityGroup &group, int64_t step) const;
  int64_t blocksOf(const Weight &weight, int64_t step) const;

  const std::vector<SparsityGroup> &groups;
  int64_t steps;
  int64_t numPatterns;
  std::vector<Weight> weights; // those of a group whose pattern can change
};

} // namespace bsr::train

#endif // BSR_TOOLS_SPARSETRAIN_PATTERNUPDATES_H

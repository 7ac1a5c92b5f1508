// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Carries out the section `sparsity` of a configuration: what the runtime's
// rules ask of the patterns of a session.

#ifndef BSR_TOOLS_SPARSETRAIN_PATTERNUPDATES_H
#define BSR_TOOLS_SPARSETRAIN_PATTERNUPDATES_H

#include "FirstValues.h"
#include "Session.h"
#include "Stages.h"

#include <memory>

namespace sparse_opt::train {

/// What happens to the patterns of a session in a run of `steps` steps.
class PatternUpdates {
public:
  /// Fails where bsr_updates_create does. `allWeights` are those of all stages.
  PatternUpdates(const bsr_sparsity *rules, int64_t steps,
                 const Session &session,
                 const std::vector<WeightShape> &allWeights);

  /// Makes the first patterns of an initialized session; the largest blocks of
  /// weights for which no file is named are those of `values`.
  void initialize(Session &session, const FirstValues &values) const;

  /// Scales the first values, which are there, for the fan-in that is stored.
  void scaleFirstValues(Session &session) const;

  /// Says what blocks begin with that updates regrow.
  void startBlocks(Session &session) const;

  /// Whether `initialize` gives the weight called `name` its values, too.
  bool setValues(const std::string &name) const;
  /// Fails if a parameter would begin as zeros without being told to: neither
  /// the step, `values` nor the first patterns say what it begins with.
  void requireValues(const Session &session, const FirstValues &values) const;
  /// Whether there are patterns that could change and never do.
  bool leavePatterns() const;
  /// The weights that the step does not train, and that a method other than
  /// static is asked of: their patterns stay, since what they lost would not
  /// come back.
  std::vector<std::string> frozen() const;

  /// Whether patterns are updated after `step` steps: of this process, or,
  /// `anywhere`, also those of other stages.
  bool areDue(int64_t step, bool anywhere) const;
  /// What is due after `step` steps for every pattern: BSR_STATIC where nothing
  /// is.
  std::vector<bsr_pattern_update> due(int64_t step) const;

  /// Whether an update reads the scores of `step`: the one after it, or a later
  /// one that sums those of several steps, which `sumScores` does.
  bool needScores(int64_t step) const;
  void sumScores(Session &session, int64_t step) const;

  /// Updates the patterns after `step` steps.
  void update(Session &session, int64_t step) const;

private:
  /// What is due after `step` steps for every weight of all stages.
  std::vector<bsr_pattern_update> dueAnywhere(int64_t step) const;

  /// As bsr_updates_scored says of the step, for every pattern.
  std::vector<int32_t> scoredOf(int64_t step) const;

  struct Release {
    void operator()(bsr_updates *updates) const {
      bsr_updates_destroy(updates);
    }
  };
  /// A pattern that a rule is for.
  struct Weight {
    int64_t pattern; // index
    bsr_pattern_info info;
    bsr_weight_rule rule;
    bool isFrozen;
  };

  std::unique_ptr<bsr_updates, Release> updates;
  int64_t numWeights;          // of all stages
  std::vector<int64_t> places; // of each pattern among these
  std::vector<Weight> weights;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_PATTERNUPDATES_H

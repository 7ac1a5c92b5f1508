// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the patterns of a run went through.

#ifndef BSR_TOOLS_SPARSETRAIN_PATTERNHISTORY_H
#define BSR_TOOLS_SPARSETRAIN_PATTERNHISTORY_H

#include "Session.h"

#include <nlohmann/json.hpp>

namespace bsr {

/// Follows every pattern of a session from update to update.
class PatternHistory {
public:
  /// Begins with the patterns as they are.
  explicit PatternHistory(const Session &session);

  /// Takes in the patterns after an update.
  void update(const Session &session);

  /// Adds what is known of the patterns to a line of the metrics, of each under
  /// "weight_<what>", of all under "<what>":
  ///
  ///     density    stored elements / all elements
  ///     used       elements that any pattern so far has stored / all elements
  ///     imbalance  blocks of the fullest block row / mean of all block rows;
  ///                of all patterns, the largest
  ///
  /// and where there was an update
  ///
  ///     pruned     blocks that went
  ///     regrown    blocks that came
  ///     lost       of the blocks that came with the update before, the share
  ///                that went with this one; absent if none came
  void describe(nlohmann::ordered_json &entry) const;

  /// What a resumed run needs to go on, and back. A history that was not saved,
  /// or of other patterns, begins with the patterns as they are.
  nlohmann::ordered_json save() const;
  void restore(const nlohmann::ordered_json &saved);

private:
  /// A set of blocks, numbered row by row.
  using Blocks = std::vector<uint64_t>;

  struct Matrix {
    bsr_pattern_info info;
    int64_t allBlocks;
    Blocks stored, used, fresh; // fresh: regrown by the last update
    int64_t pruned, regrown, wereFresh, lost;
    double imbalance;
  };

  void take(const Session &session, int64_t pattern, Blocks &blocks);

  std::vector<Matrix> matrices;
  bool updated = false;
};

} // namespace bsr

#endif // BSR_TOOLS_SPARSETRAIN_PATTERNHISTORY_H

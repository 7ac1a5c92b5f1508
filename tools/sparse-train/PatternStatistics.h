// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the metrics say of the patterns.

#ifndef BSR_TOOLS_SPARSETRAIN_PATTERNSTATISTICS_H
#define BSR_TOOLS_SPARSETRAIN_PATTERNSTATISTICS_H

#include "Ranks.h"
#include "Session.h"
#include "Stages.h"

#include <nlohmann/json.hpp>

namespace sparse_opt::train {

/// Adds to `entry`, a line of the metrics, of each pattern under
/// "weight_<what>" and of all under "<what>"
///
///     density    stored elements / all elements
///     used       elements that any pattern so far has stored / all elements
///     imbalance  blocks of the fullest block row / mean of all block rows;
///                of all patterns, the largest
///
/// and of the patterns that were just `updated`, if it is not empty
///
///     pruned     blocks that went
///     regrown    blocks that came
///     lost       of the blocks that came with the update before, the share
///                that went with this one; absent if none came
void describePatterns(const Session &session, const std::vector<bool> &updated,
                      nlohmann::ordered_json &entry);

/// Stored elements / all elements of the matrices with patterns, of all stages;
/// 1 if there are none. All processes call it.
double storedShare(const Session &session, const Ranks &ranks,
                   const Place &place,
                   const std::vector<WeightShape> &allWeights);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_PATTERNSTATISTICS_H

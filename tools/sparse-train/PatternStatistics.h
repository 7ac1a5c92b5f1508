// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the metrics say of the patterns.

#ifndef BSR_TOOLS_SPARSETRAIN_PATTERNSTATISTICS_H
#define BSR_TOOLS_SPARSETRAIN_PATTERNSTATISTICS_H

#include "Ranks.h"
#include "Session.h"
#include "Stages.h"
#include "support/Json.h"

namespace sparse_opt::train {

/// Adds to `entry`, a line of the metrics, what bsr_record_patterns says: of an
/// update if there were `updates`, one for each pattern.
void describePatterns(const Session &session,
                      const std::vector<bsr_pattern_update> *updates,
                      OrderedJson &entry);

/// Stored elements / all elements of the matrices with patterns, of all stages;
/// 1 if there are none. All processes call it.
double storedShare(const Session &session, const Ranks &ranks,
                   const Place &place,
                   const std::vector<WeightShape> &allWeights);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_PATTERNSTATISTICS_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says what a step has: patterns, blocks and products.

#ifndef BSR_TOOLS_SPARSETRAIN_DESCRIBESTEP_H
#define BSR_TOOLS_SPARSETRAIN_DESCRIBESTEP_H

#include "PatternUpdates.h"
#include "Session.h"

namespace sparse_opt::train {

/// Blocks of all patterns: those that exist, and those that are stored.
struct Blocks {
  int64_t all = 0, stored = 0, staticPatterns = 0;
};

Blocks countBlocks(const Session &session);

int64_t countSparseProducts(const bsr_step *step);

/// Prints a line for each weight in blocks: its sizes, those of a block, and
/// how many are stored.
void describeWeights(const Session &session);

/// Prints all of that, and which patterns stay as they begin.
void describe(const Session &session, const PatternUpdates &updates);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_DESCRIBESTEP_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a GPU does in an update of patterns, as PTX. It is compiled with the
// project (PatternKernels.cu), not with a step: it depends on nothing of a
// program. The runtime launches it, and the compiler predicts how long it
// takes.

#ifndef BSR_SUPPORT_PATTERNKERNELS_H
#define BSR_SUPPORT_PATTERNKERNELS_H

#include "ElementType.h"
#include "UpdateRow.h"
#include <string>

namespace sparse_opt {

/// How many thread blocks a launch of norms has in x, of a matrix with so
/// many stored blocks, and one of fills, of so many slots.
constexpr int64_t blocksOfNorms(int64_t blocks) {
  const int64_t together = patternThreads / normParts;
  return (blocks + together - 1) / together;
}
constexpr int64_t blocksOfFills(int64_t slots, int64_t bytes) {
  const int64_t most = 1024; // go round, whatever there is
  int64_t pieces = slots * (bytes % 16 ? bytes / 2 : bytes / 16);
  int64_t blocks = (pieces + patternThreads - 1) / patternThreads;
  return blocks < most ? blocks : most;
}

/// A module with the kernels below, for every GPU that steps are compiled for.
/// Their parameters are `base` and the address of the table. Block (x, y) of
/// threads works for row y of it, of `pruneKernel` and `updateKernel` block x
/// for row x.
std::string patternKernels();

/// Writes the norm of each stored block to `norms`, with the bits that the
/// runtime's `blockNorms` gives it, and the first NaN to `nanBlock`. `norm` is
/// "sum", "squares" or "largest".
std::string normKernel(const std::string &norm, ElementType type);

/// Makes `flags` the `count` blocks of the lowest norm, of equal norms the
/// first, and writes to `nanScore` the first block that an update by scores may
/// look at and whose score is NaN: scores of stored blocks do not matter unless
/// they may return. The pattern does not change.
constexpr char pruneKernel[] = "bsr_choose_pruned";

/// Chooses the blocks that are regrown, of equal scores the first, and makes
/// both views those of the new pattern. Scores are lost.
constexpr char updateKernel[] = "bsr_update_patterns";

/// Fills the listed slots; the table is one of `FillRow`.
constexpr char fillKernel[] = "bsr_fill_slots";

} // namespace sparse_opt

#endif // BSR_SUPPORT_PATTERNKERNELS_H

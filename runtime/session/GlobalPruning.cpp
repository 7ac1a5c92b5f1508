// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which of several matrices the blocks are of that gradual pruning takes from
// all of them.

#include "Session.h"
#include "base/Status.h"
#include "pattern/BlockNorm.h"
#include <algorithm>
#include <map>
#include <tuple>

using namespace sparse_opt;

namespace {
/// A stored block, by what it is ranked by.
struct RankedBlock {
  double norm;
  int64_t pattern;
  int64_t place; // in row order

  bool operator<(const RankedBlock &other) const {
    return std::tie(norm, pattern, place) <
           std::tie(other.norm, other.pattern, other.place);
  }
};
} // namespace

/// Fails unless the updates of `first` and of `other` can be one.
static void requireAlike(const std::vector<Pattern> &patterns,
                         const std::vector<bsr_pattern_update> &updates,
                         int64_t first, int64_t other) {
  const Pattern &a = patterns[first], &b = patterns[other];
  if (a.blockRows != b.blockRows || a.blockCols != b.blockCols)
    fail(BSR_INVALID_ARGUMENT,
         "expected blocks of one size to rank together, but got ", a.blockRows,
         "x", a.blockCols, " of '", a.name, "' and ", b.blockRows, "x",
         b.blockCols, " of '", b.name, "'");
  if (updates[first].norm != updates[other].norm ||
      updates[first].blocks != updates[other].blocks)
    fail(BSR_INVALID_ARGUMENT,
         "expected one norm and one number of blocks of updates together, but "
         "got ",
         int(updates[first].norm), " and ", updates[first].blocks, " for '",
         a.name, "', and ", int(updates[other].norm), " and ",
         updates[other].blocks, " for '", b.name, "'");
}

void bsr_session::shareBlocks(std::vector<bsr_pattern_update> &updates) const {
  const std::vector<Pattern> &patterns = manifest().patterns;
  std::map<int32_t, std::vector<int64_t>> members; // by the number they share
  for (size_t i = 0; i < patterns.size(); ++i)
    if (!patterns[i].isStatic && updates[i].together)
      members[updates[i].together].push_back(int64_t(i));
  for (const auto &[together, own] : members) {
    std::vector<RankedBlock> spare; // all but the last one of each matrix
    int64_t stored = 0, left = updates[size_t(own.front())].blocks;
    for (int64_t i : own) {
      requireAlike(patterns, updates, own.front(), i);
      int64_t blocks = view(i).blocks;
      rankBlocks(i, updates[size_t(i)].norm, scratch.norms);
      std::vector<RankedBlock> ranked;
      for (int64_t k = 0; k < blocks; ++k)
        ranked.push_back({scratch.norms[k], i, k});
      if (blocks)
        ranked.erase(std::max_element(ranked.begin(), ranked.end()));
      spare.insert(spare.end(), ranked.begin(), ranked.end());
      stored += blocks;
    }
    int64_t pruned =
        std::clamp<int64_t>(stored - left, 0, int64_t(spare.size()));
    std::nth_element(spare.begin(), spare.begin() + pruned, spare.end());
    for (int64_t i : own)
      updates[size_t(i)].blocks = view(i).blocks;
    for (int64_t k = 0; k < pruned; ++k)
      --updates[size_t(spare[size_t(k)].pattern)].blocks;
  }
}

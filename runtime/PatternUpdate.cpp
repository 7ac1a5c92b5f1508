// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prunes the blocks of the lowest norm and regrows others in their slots.

#include "Pattern.h"
#include "Select.h"

using namespace bsr;

namespace {
/// An update of one pattern, step by step.
class Update {
public:
  Update(const Pattern &pattern, const bsr_pattern_update &rule,
         const PatternIndices &indices, PatternScratch &scratch)
      : pattern(pattern), rule(rule), indices(indices), scratch(scratch),
        blocks(indices.rowPtr[pattern.gridRows()]) {}

  /// How many blocks the rule prunes.
  int64_t count() const {
    if (rule.method == BSR_STATIC)
      return 0;
    if (rule.method == BSR_GMP)
      return std::max<int64_t>(blocks - rule.blocks, 0);
    int64_t count = int64_t(rule.drop * double(blocks) + 0.5);
    return rule.allow_return ? count
                             : std::min(count, pattern.allBlocks() - blocks);
  }

  /// Chooses the `count` blocks of the lowest norm.
  void prune(int64_t count) {
    for (int64_t r = 0; r < pattern.gridRows(); ++r)
      for (int32_t k = indices.rowPtr[r]; k < indices.rowPtr[r + 1]; ++k)
        scratch.stored[k] = r * pattern.gridCols() + indices.colIdx[k];
    auto forEach = [&](auto visit) {
      for (int64_t k = 0; k < blocks; ++k)
        visit(k);
    };
    auto keyAt = [&](int64_t k) { return keyOf(scratch.norms[k]); };
    takeLowest(count, forEach, keyAt,
               [&](int64_t k) { scratch.pruned[pruned++] = int32_t(k); });
  }

  /// Chooses as many blocks as are pruned, of those that may be stored next.
  void regrow(const float *scores, uint64_t seed, int64_t update) {
    int64_t *barred = scratch.stored, numBarred = blocks;
    if (rule.allow_return) {
      barred = scratch.kept;
      numBarred = copyKept();
    }
    regrown = pruned;
    if (rule.method == BSR_SET) {
      chooseAbsent(pattern, barred, numBarred, regrown,
                   RandomStream(seed, "pattern", pattern.name), update,
                   scratch.marks, scratch.regrown);
    } else {
      auto forEach = [&](auto visit) {
        forEachAbsent(pattern, barred, numBarred, visit);
      };
      auto keyAt = [&](int64_t block) { return ~keyOf(scores[block]); };
      int64_t *next = scratch.regrown;
      takeLowest(regrown, forEach, keyAt,
                 [&](int64_t block) { *next++ = block; });
    }
    if (rule.allow_return)
      cancelReturned();
  }

  /// Makes the pattern what was chosen.
  PatternChange apply() {
    int64_t kept = copyKept();
    for (int64_t i = 0; i < pruned; ++i)
      scratch.freed[i] = indices.slot[scratch.pruned[i]];
    forEachKept([&](int64_t k, int64_t place) {
      indices.slot[place] = indices.slot[k];
    });
    merge(kept);
    buildViews(pattern, scratch.stored, kept + regrown, indices);
    return {pruned, regrown};
  }

private:
  /// Calls `visit(k, place)` for each stored block that is not pruned.
  template <typename Visit>
  void forEachKept(Visit visit) const {
    int64_t skipped = 0;
    for (int64_t k = 0; k < blocks; ++k) {
      if (skipped < pruned && scratch.pruned[skipped] == k)
        ++skipped;
      else
        visit(k, k - skipped);
    }
  }

  int64_t copyKept() {
    forEachKept([&](int64_t k, int64_t place) {
      scratch.kept[place] = scratch.stored[k];
    });
    return blocks - pruned;
  }

  /// Blocks that are pruned and regrown at once stay as they are.
  void cancelReturned() {
    int64_t leftPruned = 0, leftRegrown = 0, i = 0;
    for (int64_t j = 0; j < regrown; ++j) {
      int64_t block = scratch.regrown[j];
      for (; i < pruned && scratch.stored[scratch.pruned[i]] < block; ++i)
        scratch.pruned[leftPruned++] = scratch.pruned[i];
      if (i < pruned && scratch.stored[scratch.pruned[i]] == block)
        ++i;
      else
        scratch.regrown[leftRegrown++] = block;
    }
    for (; i < pruned; ++i)
      scratch.pruned[leftPruned++] = scratch.pruned[i];
    pruned = leftPruned;
    regrown = leftRegrown;
  }

  /// Merges the kept and the regrown blocks, whose slots are the freed ones,
  /// from the back, so that no slot is overwritten before it has moved.
  void merge(int64_t kept) {
    for (int64_t place = kept + regrown - 1, j = regrown; place >= 0; --place) {
      bool takesKept =
          kept && (!j || scratch.kept[kept - 1] > scratch.regrown[j - 1]);
      int64_t from = takesKept ? --kept : --j;
      scratch.stored[place] =
          takesKept ? scratch.kept[from] : scratch.regrown[from];
      indices.slot[place] =
          takesKept ? indices.slot[from] : scratch.freed[from];
    }
  }

  const Pattern &pattern;
  const bsr_pattern_update &rule;
  const PatternIndices &indices;
  PatternScratch &scratch;
  int64_t blocks;
  int64_t pruned = 0, regrown = 0; // how many are chosen
};
} // namespace

PatternChange bsr::updatePattern(const Pattern &pattern,
                                 const bsr_pattern_update &rule,
                                 const float *scores, uint64_t seed,
                                 int64_t update, const PatternIndices &indices,
                                 PatternScratch &scratch) {
  Update state(pattern, rule, indices, scratch);
  int64_t count = state.count();
  if (count == 0)
    return {0, 0};
  state.prune(count);
  if (rule.method != BSR_GMP)
    state.regrow(scores, seed, update);
  return state.apply();
}

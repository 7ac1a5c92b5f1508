// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prunes the blocks of the lowest norm and regrows others in their slots.

#include "Pattern.h"
#include "Select.h"
#include "Status.h"
#include <cstring>

using namespace bsr;

namespace {
/// An update of one pattern, step by step.
class Update {
public:
  Update(const Pattern &pattern, const bsr_pattern_update &rule,
         const PatternIndices &indices, PatternScratch &scratch)
      : pattern(pattern), rule(rule), indices(indices), scratch(scratch),
        blocks(indices.rowPtr[pattern.gridRows()]) {}

  /// Takes what the caller chose in the place of `prune` and `regrow`.
  void take(const ChosenBlocks &chosen) {
    listStored();
    const int64_t *next = chosen.pruned;
    for (int64_t k = 0; k < blocks && pruned < chosen.numPruned; ++k)
      if (scratch.stored[k] == *next) {
        scratch.pruned[pruned++] = int32_t(k);
        ++next;
      }
    regrown = chosen.numRegrown;
    std::copy_n(chosen.regrown, regrown, scratch.regrown);
  }

  /// Takes what a device chose.
  void take(const int32_t *places, int64_t numPruned, const int64_t *numbers,
            int64_t numRegrown) {
    listStored();
    pruned = numPruned;
    regrown = numRegrown;
    std::copy_n(places, pruned, scratch.pruned);
    std::copy_n(numbers, regrown, scratch.regrown);
  }

  /// How many blocks the rule prunes.
  int64_t count() const { return countPruned(pattern, rule, blocks); }

  /// Chooses the `count` blocks of the lowest norm.
  void prune(int64_t count) {
    listStored();
    auto forEach = [&](auto visit) {
      for (int64_t k = 0; k < blocks; ++k)
        visit(k);
    };
    auto keyAt = [&](int64_t k) { return keyOf(scratch.norms[k]); };
    takeLowest(count, forEach, keyAt, scratch.pruned);
    pruned = count;
  }

  /// Chooses as many blocks as are pruned, of those that may be stored next.
  void regrow(float *scores, uint64_t seed, int64_t update) {
    int64_t *barred = scratch.stored, numBarred = blocks;
    if (rule.allow_return) {
      forEachBlock([&](int64_t k, int64_t kept, int64_t) {
        scratch.kept[kept] = scratch.stored[k];
      });
      barred = scratch.kept;
      numBarred = blocks - pruned;
    }
    regrown = pruned;
    if (rule.method == BSR_SET) {
      chooseAbsent(pattern, barred, numBarred, regrown,
                   RandomStream(seed, "pattern", pattern.name), update,
                   scratch.marks, scratch.regrown);
    } else {
      // What orders below every number is never chosen.
      for (int64_t k = 0; k < numBarred; ++k)
        std::memset(scores + barred[k], 0xff, sizeof(float));
      auto forEach = [&, all = pattern.allBlocks()](auto visit) {
        for (int64_t block = 0; block < all; ++block)
          visit(block);
      };
      auto keyAt = [&](int64_t block) { return ~keyOf(scores[block]); };
      takeLowest(regrown, forEach, keyAt, scratch.regrown);
    }
    if (rule.allow_return)
      cancelReturned();
  }

  /// Makes the pattern what was chosen.
  PatternChange apply() {
    forEachBlock([&](int64_t k, int64_t kept, int64_t freed) {
      int32_t slot = indices.slot[k];
      scratch.freed[freed] = slot;
      scratch.kept[kept] = scratch.stored[k];
      indices.slot[kept] = slot;
    });
    if (regrown > pruned)
      findFree();
    merge(blocks - pruned);
    buildViews(pattern, scratch.stored, blocks - pruned + regrown, indices);
    return {pruned, regrown};
  }

private:
  void listStored() {
    bsr::listStored(pattern, indices.rowPtr, indices.colIdx, scratch.stored);
  }

  /// Puts the lowest slots without a block behind those that pruned ones free.
  void findFree() {
    std::fill_n(scratch.marks, pattern.slots / 64 + 1, 0);
    auto mark = [&](int32_t slot) {
      scratch.marks[slot / 64] |= uint64_t(1) << (slot % 64);
    };
    std::for_each_n(indices.slot, blocks - pruned, mark);
    std::for_each_n(scratch.freed, pruned, mark);
    int64_t freed = pruned;
    for (int64_t slot = 0; freed < regrown; ++slot)
      if (!(scratch.marks[slot / 64] >> (slot % 64) & 1))
        scratch.freed[freed++] = int32_t(slot);
  }

  /// Calls `visit(k, kept, freed)` for each stored block, in front of which
  /// `kept` are kept and `freed` are pruned. It may write at both places: the
  /// next block has the wrong one again.
  template <typename Visit>
  void forEachBlock(Visit visit) const {
    scratch.pruned[pruned] = -1;
    for (int64_t k = 0, freed = 0; k < blocks; ++k) {
      visit(k, k - freed, freed);
      freed += scratch.pruned[freed] == k;
    }
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
    int64_t i = kept - 1, j = regrown - 1;
    int64_t place = i + j + 1;
    for (; i >= 0 && j >= 0; --place) {
      int64_t old = scratch.kept[i], fresh = scratch.regrown[j];
      bool takesOld = old > fresh;
      int32_t oldSlot = indices.slot[i], freshSlot = scratch.freed[j];
      scratch.stored[place] = takesOld ? old : fresh;
      indices.slot[place] = takesOld ? oldSlot : freshSlot;
      i -= takesOld;
      j -= !takesOld;
    }
    // Kept blocks that are left have the right slots already.
    std::copy_n(scratch.kept, i + 1, scratch.stored);
    std::copy_n(scratch.regrown, j + 1, scratch.stored);
    std::copy_n(scratch.freed, j + 1, indices.slot);
  }

  const Pattern &pattern;
  const bsr_pattern_update &rule;
  const PatternIndices &indices;
  PatternScratch &scratch;
  int64_t blocks;
  int64_t pruned = 0, regrown = 0; // how many are chosen
};
} // namespace

int64_t bsr::countPruned(const Pattern &pattern, const bsr_pattern_update &rule,
                         int64_t blocks) {
  if (rule.method == BSR_STATIC)
    return 0;
  if (rule.method == BSR_GMP)
    return std::max<int64_t>(blocks - rule.blocks, 0);
  int64_t count = int64_t(rule.drop * double(blocks) + 0.5);
  return rule.allow_return ? count
                           : std::min(count, pattern.allBlocks() - blocks);
}

PatternChange bsr::followDevice(const Pattern &pattern, const int32_t *pruned,
                                int64_t numPruned, const int64_t *regrown,
                                int64_t numRegrown,
                                const PatternIndices &indices,
                                PatternScratch &scratch) {
  Update state(pattern, {}, indices, scratch);
  state.take(pruned, numPruned, regrown, numRegrown);
  return state.apply();
}

PatternChange bsr::updatePattern(const Pattern &pattern,
                                 const bsr_pattern_update &rule, float *scores,
                                 uint64_t seed, int64_t update,
                                 const PatternIndices &indices,
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

/// Fails unless the `count` numbers of `blocks` of `pattern`, which are to be
/// `purpose`, rise and are each stored, or each absent.
static void checkChosen(const Pattern &pattern, const int64_t *blocks,
                        int64_t count, bool isStored, const char *purpose,
                        const PatternIndices &indices) {
  int64_t before = -1;
  for (int64_t k = 0; k < count; ++k) {
    int64_t block = blocks[k];
    if (block <= before || block >= pattern.allBlocks())
      fail(BSR_INVALID_ARGUMENT, "expected rising numbers below ",
           pattern.allBlocks(), " of the blocks of '", pattern.name, "' to ",
           purpose, ", but got ", block,
           k ? " behind " + std::to_string(before) : "");
    before = block;
    int64_t r = block / pattern.gridCols(), c = block % pattern.gridCols();
    if (std::binary_search(indices.colIdx + indices.rowPtr[r],
                           indices.colIdx + indices.rowPtr[r + 1],
                           c) != isStored)
      fail(BSR_INVALID_ARGUMENT, "expected ",
           isStored ? "a stored block" : "an absent block", " of '",
           pattern.name, "' to ", purpose, ", but got block (", r, ", ", c,
           "), which is ", isStored ? "absent" : "stored");
  }
}

void bsr::checkReplacement(const Pattern &pattern, const ChosenBlocks &chosen,
                           const PatternIndices &indices) {
  checkChosen(pattern, chosen.pruned, chosen.numPruned, /*isStored=*/true,
              "prune", indices);
  checkChosen(pattern, chosen.regrown, chosen.numRegrown, /*isStored=*/false,
              "regrow", indices);
  int64_t blocks =
      indices.rowPtr[pattern.gridRows()] - chosen.numPruned + chosen.numRegrown;
  if (blocks > pattern.mostBlocks())
    fail(BSR_INVALID_ARGUMENT, "expected an update to leave '", pattern.name,
         "' at most the ", pattern.mostBlocks(),
         " blocks that it has slots for, but got ", blocks);
}

PatternChange bsr::replaceBlocks(const Pattern &pattern,
                                 const ChosenBlocks &chosen,
                                 const PatternIndices &indices,
                                 PatternScratch &scratch) {
  Update state(pattern, {}, indices, scratch);
  state.take(chosen);
  return state.apply();
}

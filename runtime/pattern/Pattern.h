// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pattern's index views: validation, construction, prune and regrow.

#ifndef BSR_RUNTIME_PATTERN_PATTERN_H
#define BSR_RUNTIME_PATTERN_PATTERN_H

#include "base/Manifest.h"
#include "support/Random.h"
#include "support/UpdateRow.h"
#include <algorithm>

namespace sparse_opt {

/// The index buffers of a pattern, writable.
struct PatternIndices {
  int32_t *rowPtr, *colIdx, *slot;
  int32_t *colPtr, *rowIdx, *slotT;
};

/// Working memory for any of a step's patterns, so that none is allocated
/// later. Blocks are numbered row * grid columns + column.
struct PatternScratch {
  double *norms;      // [blocks], in row order
  int64_t *stored;    // [blocks], rising
  int64_t *kept;      // [blocks], rising: those that are not pruned
  int32_t *pruned;    // [blocks], rising: places in `stored`
  int32_t *keptSlots; // [blocks]
  int64_t *chosen;    // [blocks], rising: blocks that may be pruned ones, too
  int64_t *regrown;   // [blocks], rising
  int32_t *freed;     // [blocks], slots
  uint8_t *flags;     // [blocks]: is it pruned?
  uint64_t *marks;    // a bit for each block of the matrix, or for each slot
  int32_t *colPtr;    // a column view
  int32_t *rowIdx, *slotT;

  /// Calls `take(pointer, elements)` for each part that `patterns` need.
  template <typename Take>
  void forEachPart(const std::vector<Pattern> &patterns, Take take) {
    int64_t slots = 0, cols = 0, marked = 0;
    for (const Pattern &pattern : patterns) {
      slots = std::max(slots, pattern.slots);
      cols = std::max(cols, pattern.gridCols());
      marked = std::max({marked, pattern.allBlocks(), pattern.slots});
    }
    take(norms, slots);
    take(stored, slots);
    // One more where loops write ahead.
    take(kept, slots + 1);
    take(keptSlots, slots + 1);
    take(pruned, slots + 1);
    take(chosen, slots + 1);
    take(regrown, slots + 1);
    take(freed, slots + 1);
    take(flags, slots);
    take(marks, marked / 64 + 1);
    take(colPtr, cols + 1);
    take(rowIdx, slots);
    take(slotT, slots);
  }
};

/// Fails, naming the place and the value, unless `view` keeps every invariant.
/// The column view may be null, and so may `slot`.
void checkPattern(const Pattern &pattern, const bsr_pattern_view &view,
                  PatternScratch &scratch);

/// Makes the places of the views of `row` those of `indices`.
void setViews(UpdateRow &row, const PatternIndices &indices);

/// Copies a checked `view` to `indices` and adds what it leaves out.
void assignPattern(const Pattern &pattern, const bsr_pattern_view &view,
                   const PatternIndices &indices);

/// Writes both views of the blocks that `stored` numbers (row * grid columns +
/// column, rising); their slots stand in `indices.slot` already.
void buildViews(const Pattern &pattern, const int64_t *stored, int64_t blocks,
                const PatternIndices &indices);

/// Writes the rising numbers of the blocks of a row view to `stored`.
void listStored(const Pattern &pattern, const int32_t *rowPtr,
                const int32_t *colIdx, int64_t *stored);

/// Chooses `count` of `absent` blocks, every choice equally likely, and writes
/// their ranks among these, rising, to `ranks`. `marks` is working memory of a
/// bit for each.
void chooseRanks(int64_t absent, int64_t count, const RandomStream &random,
                 int64_t update, uint64_t *marks, int64_t *ranks);

/// Chooses `count` of the blocks that are not in `stored`, every choice equally
/// likely, and writes their numbers, rising, to `chosen`. `marks` is working
/// memory of a bit for each absent block.
void chooseAbsent(const Pattern &pattern, const int64_t *stored, int64_t blocks,
                  int64_t count, const RandomStream &random, int64_t update,
                  uint64_t *marks, int64_t *chosen);

/// Makes `blocks` random blocks the pattern, in slots 0, 1, ....
void makePattern(const Pattern &pattern, int64_t blocks, uint64_t seed,
                 const PatternIndices &indices, PatternScratch &scratch);

/// What an update did to a pattern. The blocks and their slots are the first
/// so many of `regrown` and of `freed` of its scratch.
struct PatternChange {
  int64_t pruned, regrown;
};

/// How many of `blocks` stored blocks `rule` prunes.
int64_t countPruned(const Pattern &pattern, const bsr_pattern_update &rule,
                    int64_t blocks);

/// What `rule` makes of a pattern with `blocks` stored blocks, without places.
UpdateRow describeUpdate(const Pattern &pattern, const bsr_pattern_update &rule,
                         int64_t blocks);

/// Chooses what an update that `row` describes regrows at random: writes the
/// ranks, rising, among all blocks that may be stored next. `marks` is working
/// memory of a bit for each.
void drawRanks(const Pattern &pattern, const UpdateRow &row, uint64_t seed,
               int64_t update, uint64_t *marks, int64_t *ranks);

/// Makes `flags` say of each stored block whether `rule` prunes it, by
/// `scratch.norms`. The pattern does not change.
void choosePruned(const Pattern &pattern, const bsr_pattern_update &rule,
                  const PatternIndices &indices, PatternScratch &scratch,
                  uint8_t *flags);

/// Prunes the blocks that `choosePruned` chose, which `flags` loses, and
/// regrows others as `rule` says, for RigL by `scores`, one for each block of
/// the matrix, which are lost.
PatternChange updatePattern(const Pattern &pattern,
                            const bsr_pattern_update &rule, uint8_t *flags,
                            float *scores, uint64_t seed, int64_t update,
                            const PatternIndices &indices,
                            PatternScratch &scratch);

/// What the caller chose: rising numbers of blocks.
struct ChosenBlocks {
  const int64_t *pruned, *regrown;
  int64_t numPruned, numRegrown;
};

/// Fails unless the pruned blocks of `chosen` are stored, the regrown ones are
/// absent, and the slots have room for what it leaves.
void checkReplacement(const Pattern &pattern, const ChosenBlocks &chosen,
                      const PatternIndices &indices);

/// Replaces blocks as a checked `chosen` says. The slots of the regrown ones,
/// and all that were freed, are the first of the scratch's `freed`.
PatternChange replaceBlocks(const Pattern &pattern, const ChosenBlocks &chosen,
                            const PatternIndices &indices,
                            PatternScratch &scratch);

/// Makes a pattern what a device made of it: prunes the blocks at these rising
/// places of the row view, and regrows those with these rising numbers.
PatternChange followDevice(const Pattern &pattern, const int32_t *pruned,
                           int64_t numPruned, const int64_t *regrown,
                           int64_t numRegrown, const PatternIndices &indices,
                           PatternScratch &scratch);

} // namespace sparse_opt

#endif // BSR_RUNTIME_PATTERN_PATTERN_H

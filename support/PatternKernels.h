// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a GPU does in an update of patterns, as PTX. It is written here, not
// compiled with a step: it depends on nothing of a program. The runtime
// launches it, and the compiler predicts how long it takes.

#ifndef BSR_SUPPORT_PATTERNKERNELS_H
#define BSR_SUPPORT_PATTERNKERNELS_H

#include "ElementType.h"
#include <cstdint>
#include <string>

namespace bsr {

/// What an update may regrow.
enum class Regrowth : uint32_t {
  None,
  /// Absent blocks by their ranks among all absent ones.
  Ranks,
  /// The absent blocks of the highest scores.
  Scores,
};

/// What the kernels below know of one matrix: a row of a table in the GPU's
/// memory. A place is an address, less the `base` that kernels are called with.
/// Blocks are numbered row * columns + column.
struct UpdateRow {
  // Places of what the step has.
  uint64_t values;
  uint64_t rowPtr, colIdx, slot, colPtr, rowIdx, slotT;
  uint64_t scores; ///< f32, one for each block of the matrix
  // Of what an update works with, an entry for each stored block.
  uint64_t norms;     ///< f64
  uint64_t stored;    ///< u64, their numbers, rising
  uint64_t kept;      ///< u64, those that are not pruned
  uint64_t keptSlots; ///< u32
  uint64_t flags;     ///< u32, 1 where a block is pruned
  // Bits and counts of 32 rows of each column, u32; of updates by scores the
  // first are a bit for each block of the matrix.
  uint64_t marks, before;
  // An entry for each block that is chosen.
  uint64_t chosen; ///< u64, ranks before and blocks afterwards, rising
  uint64_t fresh;  ///< u64, those that are regrown: `chosen` without `returns`
  uint64_t pruned; ///< u32, places in `stored`, rising
  uint64_t freed;  ///< u32, the slots of the pruned blocks
  uint64_t result; ///< an UpdateResult
  uint32_t elements;
  uint32_t rows, cols, blocks;
  uint32_t count; ///< how many blocks are chosen; 0: nothing is done
  Regrowth regrowth;
  uint32_t returns; ///< 1: a pruned block may be regrown, and then stays
  uint32_t rounds;  ///< of a search among `blocks` numbers: `roundsOf(blocks)`

  static constexpr uint32_t roundsOf(uint64_t blocks) {
    uint32_t rounds = 0;
    for (; blocks; blocks /= 2)
      ++rounds;
    return rounds;
  }
  /// Entries of `before`, and at least of `marks`.
  static constexpr int64_t groupsOfRows(int64_t rows, int64_t cols) {
    return (rows + 31) / 32 * cols;
  }
};

/// What an update did. The caller makes the first two 0 and the others all
/// ones.
struct UpdateResult {
  uint64_t numPruned, numRegrown;
  uint64_t nanBlock; ///< the first place in row order of a norm that is NaN
  uint64_t nanScore; ///< the first block of a score that is NaN
};

/// What a launch fills of one buffer of values: a row of a table.
struct FillRow {
  uint64_t values;
  uint64_t slots; ///< u32
  uint64_t count; ///< u64, how many slots are listed
  uint64_t fresh; ///< u64, how many of them, the first, are of new blocks
  uint64_t bytes; ///< of a slot, a multiple of 2
  /// The slots that lie in this buffer, the first of which begins it.
  uint64_t first, end;
  /// The eight bytes that are repeated in slots of new blocks; others are
  /// zeroed.
  uint64_t bits;
};

/// Threads of the blocks that launches have: `updateThreads` where a block does
/// all that is done for a row, and `patternThreads` else.
constexpr unsigned updateThreads = 1024, patternThreads = 128;
/// Of a launch of norms, how many threads have one block of the matrix.
constexpr unsigned normThreads = 8;

/// How many blocks of threads a launch of norms has in x, of a matrix with so
/// many stored blocks, and one of fills, of so many slots.
constexpr int64_t blocksOfNorms(int64_t blocks) {
  const int64_t together = patternThreads / normThreads;
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
/// threads works for row y of it, of `scoresKernel` and `updateKernel` block x
/// for row x.
std::string patternKernels();

/// Writes the norm of each stored block to `norms`, with the bits that the
/// runtime's `blockNorms` gives it, and the first NaN to `nanBlock`. `norm` is
/// "sum", "squares" or "largest".
std::string normKernel(const std::string &norm, ElementType type);

/// Writes to `nanScore` the first block that an update may look at and whose
/// score is NaN: scores of stored blocks do not matter unless they may return.
constexpr char scoresKernel[] = "bsr_check_scores";

/// Chooses the `count` blocks of the lowest norm and those that are regrown,
/// and makes both views those of the new pattern. Of equal norms and scores the
/// first are chosen.
constexpr char updateKernel[] = "bsr_update_patterns";

/// Fills the listed slots; the table is one of `FillRow`.
constexpr char fillKernel[] = "bsr_fill_slots";

} // namespace bsr

#endif // BSR_SUPPORT_PATTERNKERNELS_H

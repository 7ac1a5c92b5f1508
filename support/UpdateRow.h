// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an update of a pattern works on, for the code that runs on a GPU and for
// its callers alike.

#ifndef BSR_SUPPORT_UPDATEROW_H
#define BSR_SUPPORT_UPDATEROW_H

#include <cstdint>

namespace sparse_opt {

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
  uint64_t flags;     ///< is the block pruned? bits of u32, bytes on the host
  // Bits and counts of 32 rows of each column, u32; where scores are checked
  // the first are a bit for each block of the matrix.
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

  /// Words of `flags`.
  static constexpr int64_t wordsOfFlags(int64_t blocks) {
    return (blocks + 31) / 32;
  }
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
/// Partial sums of the norm of a block: element i goes to sum i mod 8, so that
/// the order is fixed and yet leaves room for vectors, and for threads, of
/// which a launch has one for each.
constexpr unsigned normParts = 8;

} // namespace sparse_opt

#endif // BSR_SUPPORT_UPDATEROW_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops of a bsr.spmm that gathers.

#ifndef BSR_LIB_CODEGEN_CPU_GATHERNEST_H
#define BSR_LIB_CODEGEN_CPU_GATHERNEST_H

#include "SparseKernels.h"

namespace mlir::bsr::cpu {

/// The loops of a product: over lines of blocks, tiles of a line, and k-blocks,
/// each as many stored blocks as the first-level cache holds.
struct GatherNest {
  /// By `given`, which has rows and panels. `isInMemory`: the values of `op`
  /// are, and not computed from others; `hasCopy`: they were copied to where
  /// they lie as products take them, in the view's order.
  GatherNest(SpMMOp op, CPUTarget target, const ProductSchedule &given,
             bool isInMemory, bool hasCopy);

  /// The first elements, in the line, of the cache lines of a stream that tile
  /// number `tile` prefetches in its step number `step`. The first tile has
  /// rows to prefetch; each of the others has equally many, as many in each
  /// step as there must be where lines have equally many blocks.
  SmallVector<std::pair<Index, Index>> getStreamed(Emitter &e, Index tile,
                                                   Index step) const;

  PatternType pattern;
  View walked;
  int64_t lines;
  /// Features of a block along the lines, which are made, and across them,
  /// which are read.
  int64_t outBlock, inBlock;
  Type sumType, outType;
  /// The features of a line; the first of the tiles is a group of its own.
  SmallVector<Tiles, 2> tiles;
  /// The first tile of a line prefetches what the block needs that comes
  /// `ahead` blocks later: of small blocks, it is not worth the instructions.
  bool prefetches;
  int64_t ahead;
  /// The others do, too: rows of a line leave the first-level cache before they
  /// read them.
  bool rereads;
  /// Each line prefetches as many rows of the next tile of lanes; none if two
  /// do not stay in the second-level cache.
  int64_t rowsOfNext = 0;
  /// Lanes of a vector of a full tile, and vectors side by side: lines that are
  /// too low for a tile of their own take several.
  int64_t panel, panels;
  /// A tile has more rows and half of a panel's vectors: the halves are taken
  /// one after the other.
  bool halves;
  /// Features of a block that are read in one step.
  int64_t unroll;
  /// Stored blocks of a k-block; 0 if all of a line are one k-block.
  int64_t blocks;
  /// The walk is `ordered_gather`.
  bool isOrdered;
  /// Values are converted before they are multiplied; sums are rounded.
  bool isWidened, isRounded;
  /// Features are multiplied in pairs, where lanes allow it; pairs of values
  /// that do not lie side by side in a block are packed first.
  bool hasPairs, isPacked;
  /// Rows are converted, of a k-block for all tiles at once; vectors of bf16
  /// are split (`SplitLanes.h`).
  bool isRowWidened, isSplit;
};

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_GATHERNEST_H

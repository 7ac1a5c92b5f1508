// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which stored blocks of a pattern a thread block computes at one time.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_SDDMMPLAN_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_SDDMMPLAN_H

#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Codegen/GPU/Core/BlockBuilder.h"

namespace mlir::bsr::gpu {

/// The blocks of `numLines` block rows, here lines, of `length` positions, of
/// which at most `slots` are stored. Lines are taken in groups of `lines`; a
/// group in windows, which have at most `slabs` positions at which a line of
/// the group stores a block, in increasing order, and at most `blocks` blocks
/// there, sorted by line and then by position. A launch finds the windows of a
/// pattern and leaves them in arrays.
///
/// The blocks of a window may be shared among several thread blocks: each
/// has as many, one after the other, but the last ones. The rows of a line and
/// the columns of a position go to buffers of shared memory, of which each
/// thread block has as many. What several thread blocks need, or several blocks
/// of one, goes to a buffer that is free in all of them, and is copied once.
/// Lines come first, for which there always is one: those of a thread block
/// follow each other. If there is none for a position, each of its
/// blocks gets a buffer of its own.
struct SDDMMPlan {
  int64_t numLines, length, slots;
  /// A power of 2, and the others.
  int64_t lines, slabs, blocks;
  /// Thread blocks that share a window. Of more than one, each has room for
  /// `blocks / shares` and so many buffers, no fewer than for as many blocks
  /// and all lines.
  int64_t shares = 1, buffers = 0;

  int64_t getNumGroups() const { return llvm::divideCeil(numLines, lines); }
  /// The most windows that a group can have, and all together.
  int64_t getMaxOfGroup() const;
  int64_t getMax() const;
  /// True if a thread block with `sharedBytes` can find the windows, and
  /// offsets have 32 bits.
  bool fits(int64_t sharedBytes) const;

  /// The arrays, of 32-bit integers; a window is that of a group.
  enum Array {
    Counts,    ///< windows of a group, `[groups]`
    Sizes,     ///< positions and blocks of a window, `[groups, windows, 2]`
    Positions, ///< `[groups, windows, slabs]`
    Words,     ///< blocks, as `getLine` and `getSlab` take them apart, 0 where
               ///< a window has fewer, `[groups, windows, blocks]`; if windows
               ///< are shared, the buffers of line and position
    Firsts,    ///< the number that the first block of a line would have in a
               ///< window, `[groups, windows, lines]`
    Owned,     ///< blocks of a line in a window, `[groups, windows, lines]`
    Locations, ///< of each block of a line, the number of its window times
               ///< `blocks`, plus its own there, `[numLines, length]`
    // If windows are shared:
    Costs,  ///< what a step of the windows of a group costs, `[groups]`
    Rows,   ///< of a line, the thread blocks that have blocks of it and
            ///< its buffer, as `getMask` and `getBuffer` take it apart,
            ///< `[groups, windows, lines]`
    Copies, ///< what is copied with each block, as these and `getPosition`
            ///< take it apart, `[groups, windows, blocks]`
    Free,   ///< of each thread block the buffers that what it has in
            ///< common leaves, a bit each, `[groups, windows, shares]`
    NumArrays
  };
  SmallVector<MemRefType> getTypes(MLIRContext *context) const;

  /// Emits the launch that fills `arrays` from `view`, the block rows.
  void emit(OpBuilder &b, Location loc, const PatternView &view,
            ValueRange arrays) const;

  /// Of a word, the line in the group and the position in the window.
  static Value getLine(BlockBuilder &b, Value word) {
    return b.div(word, wordBase);
  }
  static Value getSlab(BlockBuilder &b, Value word) {
    return b.rem(word, wordBase);
  }

  /// Of a copy, the thread blocks that it goes to, a bit each, none if
  /// nothing is copied, its buffer, and its position.
  static Value getMask(BlockBuilder &b, Value copy) {
    return b.rem(copy, copyBase);
  }
  static Value getBuffer(BlockBuilder &b, Value copy) {
    return b.rem(b.div(copy, copyBase), copyBase);
  }
  static Value getPosition(BlockBuilder &b, Value copy) {
    return b.div(copy, copyBase * copyBase);
  }

  /// Room that each thread block has for blocks.
  int64_t getOfShare() const { return blocks / shares; }
  /// How many blocks a thread block has of a window of `count`, but the
  /// last ones.
  Value getShare(BlockBuilder &b, Value count) const {
    return b.div(b.add(count, shares - 1), shares);
  }
  /// How many blocks of a window of `count` thread block `rank` has.
  Value getBlocks(BlockBuilder &b, Value count, Value rank) const;
  /// What a step of a window of `count` blocks costs: so many blocks, and for
  /// what has to be done besides, no fewer than half of those that there may
  /// be.
  Value getCost(BlockBuilder &b, Value count) const {
    return b.max(getShare(b, count), b.constant(getLeastCost()));
  }
  int64_t getLeastCost() const { return llvm::divideCeil(getOfShare(), 2); }

  /// The windows of the groups before `group`.
  static Value countBefore(BlockBuilder &b, Value counts, Value group);

private:
  static constexpr int64_t wordBase = 1 << 16;
  static constexpr int64_t mostLines = 32;
  static constexpr int64_t copyBase = 1 << 8;

  /// How many warps note lines side by side, as far as shared memory lasts.
  int64_t getMarkers(int64_t sharedBytes) const;
  int64_t getSharedBytes(int64_t markers) const {
    return 4 * llvm::alignTo(length, 4) * (markers + 2);
  }
  friend class SDDMMPlanner;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_SDDMMPLAN_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In which order a thread block goes through the blocks of several lines.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_SPMMPLAN_H
#define BSR_LIB_CODEGEN_GPU_SPMM_SPMMPLAN_H

#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Codegen/GPU/Core/BlockBuilder.h"
#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"

namespace mlir::bsr::gpu {

/// What a thread block does: the chunks of a group that it goes through, or
/// the slices of one whose sums it adds.
struct ChunkRange {
  /// The number of the group; as far as a kernel knows it by itself, that of a
  /// whole one.
  Value group, whole;
  /// Numbers of chunks: the first one, and the one behind the last.
  Value first, end;
  /// Where groups may be cut: true if it is a slice, which leaves its sums for
  /// others, and the number of the slice.
  Value isSlice, slice;
  /// Slices that are added, `numSlices` from `firstSlice` on, instead of
  /// chunks.
  Value firstSlice, numSlices;
};

/// The blocks of `numLines` lines, each of `length` positions, of which at most
/// `slots` are stored. Lines are taken in groups of `lines`; a group in chunks,
/// which are what is in shared memory at one time: at most `slabs` positions at
/// which a line of the group stores a block, in increasing order, and at most
/// `blocks` blocks there, sorted by line and then by position. A launch makes
/// the plan of a pattern in four arrays.
///
/// Small blocks are packed: a line is `packedLines` neighbouring lines of the
/// pattern, a position `packedPositions` neighbouring ones, and a block has the
/// pattern's blocks there as its members, of which one or more are stored.
///
/// Or, `isByLine`, a chunk is one position, and its slots lie by line: it has
/// no words.
///
/// Groups that have much more to do than others may be cut (`cutLongGroups`):
/// thread blocks behind those of groups go through their slices, and leave
/// sums, which another launch adds in order.
struct SpMMPlan {
  int64_t numLines, length, slots;
  int64_t lines, slabs, blocks;
  int64_t packedLines = 1, packedPositions = 1;
  /// The blocks of a line in a chunk begin at a multiple of this, 1 or 2.
  int64_t alignment = 1;
  bool isByLine = false;
  /// What a group has to do, about: its chunks times `chunkCost`, and, times
  /// `blockCost`, those of its blocks that take longest: the ones of one warp,
  /// of `warpLines`, or a fair share of them all, of which so many issue
  /// instructions at one time.
  int64_t chunkCost = 1, blockCost = 0, warpLines = 1;
  int64_t warpsAtOnce = static_cast<int64_t>(issueSlots);
  /// Slices that there are at most; if 0, groups are not cut.
  int64_t numSlices = 0;
  /// Of a launch, groups or slices that run at one time, and how often as many
  /// as the groups do so, in units.
  static constexpr int64_t turnUnits = 16;
  int64_t itemsAtOnce = 0, turns = 0;

  /// A plan by line.
  static SpMMPlan getByLine(int64_t numLines, int64_t length, int64_t slots,
                            int64_t lines) {
    SpMMPlan plan{numLines,        length, slots, lines, /*slabs=*/1,
                  /*blocks=*/lines};
    plan.isByLine = true;
    return plan;
  }

  int64_t getNumGroups() const { return llvm::divideCeil(numLines, lines); }
  int64_t getPackedBlocks() const { return packedLines * packedPositions; }
  /// The most chunks that a group can have.
  int64_t getMaxChunks() const;
  /// About how many chunks a group has that is full of blocks.
  int64_t getFullChunks() const;
  /// True if a thread block with `sharedBytes` can make the plan, and its
  /// offsets have 32 bits.
  bool fits(int64_t sharedBytes) const;
  /// The arrays, of 32-bit integers: chunks of a group, `[groups]`; positions,
  /// `[groups, chunks, slabs]`, those that a chunk lacks are 0; words,
  /// `[groups, chunks, lines]`, which `getSlabs` and `getFirstBlock` take
  /// apart; slots, `[groups, chunks, blocks, members]`, those that a chunk
  /// lacks are -1, or, by line, `slots`, one more than the last; members are in
  /// the order of lines, and then of positions. If groups may be cut, also what
  /// each has to do, `[groups]`, and what SplitK writes, in rows of
  /// `itemFields`: for each group and then each slice the group, the first
  /// chunk, the end and 1, or zeros if it has nothing to do, `[groups + slices,
  /// 4]`; for each group its first slice and how many it has, `[groups, 4]`.
  SmallVector<MemRefType> getTypes(MLIRContext *context) const;
  int64_t getNumArrays() const {
    return getNumChunkArrays() + (numSlices ? 3 : 0);
  }

  /// Has groups cut, if one of them can have so much to do that a launch with
  /// `blocks` thread blocks a group takes noticeably longer: a group that
  /// is full of blocks has `fullRatio` times as much to do as the mean.
  /// `work` is that of a launch whose groups are alike: what is gained has to
  /// be worth that each step has one more; null if it is worth any.
  void cutLongGroups(const Chip &chip, int64_t blocks, double fullRatio,
                     const KernelWork *work);

  /// What a thread block does, by its number in a launch of groups and
  /// slices, or in a launch of groups that adds slices. The last value is true
  /// if it does something; it is null if all do.
  std::pair<ChunkRange, Value> getItem(BlockBuilder &b, Value number,
                                       ValueRange arrays) const;
  std::pair<ChunkRange, Value> getSum(BlockBuilder &b, Value number,
                                      ValueRange arrays) const;

  /// Emits the launch that fills `arrays` from the blocks of `view`, but for
  /// what SplitK writes.
  void emit(OpBuilder &b, Location loc, const PatternView &view,
            ValueRange arrays) const;

  /// Of a word: a bit for each slab of the chunk at which the line stores a
  /// block, and the first of these blocks.
  static Value getSlabs(BlockBuilder &b, Value word) {
    return b.bitAnd(word, b.constant((1 << slabBits) - 1));
  }
  static Value getFirstBlock(BlockBuilder &b, Value word) {
    return b.shiftRight(word, b.constant(slabBits));
  }

  /// The most slabs of a chunk.
  static constexpr int64_t slabBits = 16;
  /// Integers of a row of what SplitK writes.
  static constexpr int64_t itemFields = 4;

private:
  /// What the launch that makes the plan shares.
  int64_t getSharedBytes() const { return 4 * length * (packedPositions + 1); }
  /// The blocks of a chunk if lines of the group had to begin anywhere.
  int64_t getRoom() const { return blocks - lines * (alignment - 1); }
  /// The arrays of groups and chunks alone.
  int64_t getNumChunkArrays() const { return isByLine ? 3 : 4; }
  friend class SpMMPlanner;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_SPMMPLAN_H

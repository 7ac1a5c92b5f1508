// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In which order a block of threads goes through the blocks of several lines.

#ifndef BSR_LIB_CODEGEN_GPU_LINEPLAN_H
#define BSR_LIB_CODEGEN_GPU_LINEPLAN_H

#include "BlockBuilder.h"
#include "bsr/Codegen/Common/Blocks.h"

namespace mlir::bsr {

/// The blocks of `numLines` lines, each of `length` positions, of which at most
/// `slots` are stored. Lines are taken in groups of `lines`; a group in chunks,
/// which are what is in shared memory at one time: at most `slabs` positions at
/// which a line of the group stores a block, in increasing order, and at most
/// `blocks` blocks there, sorted by line and then by position. A launch makes
/// the plan of a pattern in four arrays.
///
/// Small blocks are packed: a line is `packedLines` neighbouring lines of the
/// pattern, a position `packedPositions` neighbouring ones, and a block has the
/// pattern's blocks there as its parts, of which one or more are stored.
///
/// Or, `isByLine`, a chunk is one position, and its slots lie by line: it has
/// no words.
struct LinePlan {
  int64_t numLines, length, slots;
  int64_t lines, slabs, blocks;
  int64_t packedLines = 1, packedPositions = 1;
  /// The blocks of a line in a chunk begin at a multiple of this, 1 or 2.
  int64_t alignment = 1;
  bool isByLine = false;

  /// A plan by line.
  static LinePlan getByLine(int64_t numLines, int64_t length, int64_t slots,
                            int64_t lines) {
    LinePlan plan{numLines,        length, slots, lines, /*slabs=*/1,
                  /*blocks=*/lines};
    plan.isByLine = true;
    return plan;
  }

  int64_t getNumGroups() const { return llvm::divideCeil(numLines, lines); }
  int64_t getParts() const { return packedLines * packedPositions; }
  /// The most chunks that a group can have.
  int64_t getMaxChunks() const;
  /// True if a block of threads with `sharedBytes` can make the plan, and its
  /// offsets have 32 bits.
  bool fits(int64_t sharedBytes) const;
  /// The arrays, of 32-bit integers: chunks of a group, `[groups]`; positions,
  /// `[groups, chunks, slabs]`, those that a chunk lacks are 0; words,
  /// `[groups, chunks, lines]`, which `getSlabs` and `getFirstBlock` take
  /// apart; slots,
  /// `[groups, chunks, blocks, parts]`, those that a chunk lacks are -1, or, by
  /// line, `slots`, one more than the last; parts are in the order of lines,
  /// and then of positions.
  SmallVector<MemRefType> getTypes(MLIRContext *context) const;

  /// Emits the launch that fills `arrays` from the blocks of `view`.
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

private:
  /// What the launch that makes the plan shares.
  int64_t getSharedBytes() const { return 4 * length * (packedPositions + 1); }
  /// The blocks of a chunk if lines of the group had to begin anywhere.
  int64_t getRoom() const { return blocks - lines * (alignment - 1); }
  friend class LinePlanner;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_LINEPLAN_H

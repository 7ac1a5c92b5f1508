// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the warps of a thread block go through the chunks of a plan.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_WARPMAINLOOP_H
#define BSR_LIB_CODEGEN_GPU_SPMM_WARPMAINLOOP_H

#include "SpMMMainloop.h"

namespace mlir::bsr::gpu {

/// A mainloop of warps, each of which owns lines and tokens: a chunk is several
/// positions, and a warp finds its blocks there by a word of the plan. Classes
/// that derive from it say who copies, and how.
class WarpMainloop : public SpMMMainloop {
public:
  std::unique_ptr<Multiplier> createMultiplier() override;
  /// Accumulators are lines of the warp.
  Value getOutput(int64_t accumulator, Value row) override {
    return b.multiplyAdd(getLine(accumulator), shape.outBlock, row);
  }

protected:
  /// `warp` is the number of this one among those that multiply.
  WarpMainloop(const SpMMContext &product, const SpMMTile &tile,
               BlockBuilder &b, Value warp);

  /// Adds all blocks of lines to their sums, of each line as many, at the slabs
  /// and blocks that the lines' words of the plan say.
  SmallVector<Value> addBlocks(Value stage, ValueRange words,
                               const Multiplier &multiplier, ValueRange sums);
  /// The number of the warp's `line`, which may be beyond the last.
  Value getLine(int64_t line);
  /// Where the first block of a line in the stage is read that `offset` bytes
  /// are behind its begin.
  Value getBlock(Value stage, Value word, Value offset);
  /// Goes from one slab with a block of the line to the next.
  SmallVector<Value> addListed(Value stage, Value word,
                               const Multiplier &multiplier, ValueRange sums);
  /// The same, two at a time, of 8 inputs each, which are one operand of 16.
  SmallVector<Value> addGathered(Value stage, Value word,
                                 const Multiplier &multiplier, ValueRange sums);
  /// Asks of each slab which lines have a block there; it is loaded once.
  SmallVector<Value> addScanned(Value stage, ValueRange words,
                                const Multiplier &multiplier, ValueRange sums);
  /// Fills the row of zeros that gathered blocks have where one is missing.
  void clearZeros();
  /// The words of the warp's lines.
  SmallVector<Value> loadWords(Value chunk);
  /// The first line of the thread block in its group.
  Value getFirstLine();

  const SpMMTile tile;
  const StageLayout layout;
  /// The warp's first token among those of the thread block, and the first
  /// line of the warp among those of the thread block.
  Value warpToken, warpLine;
  /// The plan of the group.
  Value positions, words, slots;
  /// Where blocks are gathered: which of two the lane's row of activations
  /// belongs to, and where what it reads of a slab and of a block begins.
  struct Gathered {
    Value half, slab, block;
  };
  std::optional<Gathered> gathered;

private:
  std::unique_ptr<Multiplier> createWarpMultiplier(Type type);
  std::unique_ptr<Multiplier> createLaneMultiplier(Type type);
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_WARPMAINLOOP_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a thread block goes through the chunks of a plan.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_CHUNKWALK_H
#define BSR_LIB_CODEGEN_GPU_SPMM_CHUNKWALK_H

#include "PlannedSpMM.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"

namespace mlir::bsr::gpu {

/// A product as walks go through it.
struct WalkedProduct {
  SpMMOp op;
  const SpMMShape &shape;
  const SpMMTile &tile;
  const LinePlan &plan;
  const SpMMLaunch &launch;
};

/// The walk of a thread block through the chunks of its group of lines: a
/// stage of shared memory holds the activations of a chunk's positions and its
/// blocks, while copies for the next stages are under way. A warp owns lines
/// and tokens. Classes that derive from it say who copies, and how.
class ChunkWalk {
public:
  virtual ~ChunkWalk() = default;

  /// Adds to the sums of the warp's lines what is in a stage, at the slabs and
  /// blocks that the lines' words of the plan say.
  using Multiply = llvm::function_ref<SmallVector<Value>(
      Value stage, ValueRange words, ValueRange sums)>;

  /// In the warps that multiply: the sums that `begin` returns, as many for
  /// each line of the warp, go to `finish` when `multiply` has added to them
  /// what is in all stages.
  virtual void run(llvm::function_ref<SmallVector<Value>()> begin,
                   Multiply multiply,
                   llvm::function_ref<void(ValueRange sums)> finish) = 0;

  /// Adds all blocks of lines to their sums, of each line as many:
  /// `multiplier` has blocks as its left operand, and activations as its right
  /// one.
  SmallVector<Value> addBlocks(Value stage, ValueRange words,
                               const Multiplier &multiplier, ValueRange sums);
  /// The number of the warp's `line`, which may be beyond the last.
  Value getLine(int64_t line);
  /// Calls `body` where `line` is one of the matrix.
  void whenInside(Value line, llvm::function_ref<void()> body);

  const StageLayout layout;
  const ChunkRange range;
  /// The batch, and the first token of the warp in it.
  Value batch, firstToken;
  /// The warp's first token among those of the thread block.
  Value warpToken;
  /// Tokens may be beyond the last.
  bool isRagged;

protected:
  /// The thread block goes through `range`; `warp` is the number of this
  /// one among those that multiply.
  ChunkWalk(const WalkedProduct &product, const ChunkRange &range,
            BlockBuilder &b, Value warp);

  /// Where the first block of a line in the stage is read that `place` bytes
  /// are behind its begin.
  Value getBlock(Value stage, Value word, Value place);
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
  Value clampChunk(Value chunk) {
    return b.min(chunk, b.constant(plan.getMaxChunks() - 1));
  }
  /// The words of the warp's lines.
  SmallVector<Value> loadWords(Value chunk);
  /// The first line of the thread block in its group.
  Value getFirstLine();

  const SpMMShape &shape;
  const SpMMTile &tile;
  const LinePlan &plan;
  BlockBuilder &b;
  Type i32;
  /// The first token of the thread block in its batch, and the first line
  /// of the warp among those of the thread block.
  Value tokenTile, warpLine;
  /// The plan of the group.
  Value positions, words, slots;
  /// Where blocks are gathered: which of two the lane's row of activations
  /// belongs to, and where what it reads of a slab and of a block begins.
  struct Gathered {
    Value half, slab, block;
  };
  std::optional<Gathered> gathered;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_CHUNKWALK_H

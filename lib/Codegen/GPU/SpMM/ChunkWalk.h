// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a block of threads goes through the chunks of a plan.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_CHUNKWALK_H
#define BSR_LIB_CODEGEN_GPU_SPMM_CHUNKWALK_H

#include "PlannedSpMM.h"

namespace mlir::bsr::gpu {

/// A product as walks go through it.
struct WalkedProduct {
  SpMMOp op;
  const SpMMShape &shape;
  const SpMMTile &tile;
  const LinePlan &plan;
  const SpMMLaunch &launch;
};

/// The walk of a block of threads through the chunks of its group of lines: a
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

  /// What is multiplied of a slab in shared memory.
  using Load = llvm::function_ref<SmallVector<Value>(Value slab)>;
  /// Adds the product of `operands`, which `Load` returned, and a block in
  /// shared memory to the sums of one line.
  using MultiplyBlock = llvm::function_ref<SmallVector<Value>(
      ValueRange operands, Value block, ValueRange sums)>;

  /// Adds all blocks of lines to their sums; a slab is loaded `slabOffset`
  /// bytes from where it begins, a block multiplied `blockOffset` bytes from
  /// there.
  SmallVector<Value> addBlocks(Value stage, ValueRange words, Value slabOffset,
                               Value blockOffset, ValueRange sums, Load load,
                               MultiplyBlock multiply);
  /// `sums`, with what `multiply` adds to those of each line.
  static SmallVector<Value> multiplyLines(
      ValueRange words, ValueRange sums,
      llvm::function_ref<SmallVector<Value>(Value word, ValueRange sums)>
          multiply);

  /// The number of the warp's `line`, which may be beyond the last.
  Value getLine(int64_t line);
  /// Calls `body` where `line` is one of the matrix.
  void whenInside(Value line, llvm::function_ref<void()> body);

  const StageLayout layout;
  const ChunkRange range;
  /// The batch, and the first token of the warp in it.
  Value batch, firstToken;
  /// The warp's first token among those of the block of threads.
  Value warpToken;
  /// Tokens may be beyond the last.
  bool isRagged;

protected:
  /// The block of threads goes through `range`; `warp` is the number of this
  /// one among those that multiply.
  ChunkWalk(const WalkedProduct &product, const ChunkRange &range,
            BlockBuilder &b, Value warp);

  /// Where the first block of a line in the stage is multiplied.
  Value getBlock(Value stage, Value word, Value blockOffset);
  /// Goes from one slab with a block of the line to the next.
  SmallVector<Value> addListed(Value word, Value firstSlab, Value block,
                               ValueRange sums, Load load,
                               MultiplyBlock multiply);
  /// Asks of each slab which lines have a block there; it is loaded once.
  SmallVector<Value> addScanned(ValueRange words, Value firstSlab,
                                ValueRange blocks, ValueRange sums, Load load,
                                MultiplyBlock multiply);
  Value clampChunk(Value chunk) {
    return b.min(chunk, b.constant(plan.getMaxChunks() - 1));
  }
  /// The words of the warp's lines.
  SmallVector<Value> loadWords(Value chunk);
  /// The first line of the block of threads in its group.
  Value getFirstLine();

  const SpMMShape &shape;
  const SpMMTile &tile;
  const LinePlan &plan;
  BlockBuilder &b;
  Type i32;
  /// The first token of the block of threads in its batch, and the first line
  /// of the warp among those of the block of threads.
  Value tokenTile, warpLine;
  /// The plan of the group.
  Value positions, words, slots;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_CHUNKWALK_H

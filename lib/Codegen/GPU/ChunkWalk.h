// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a block of threads goes through the chunks of a plan.

#ifndef BSR_LIB_CODEGEN_GPU_CHUNKWALK_H
#define BSR_LIB_CODEGEN_GPU_CHUNKWALK_H

#include "LinePlan.h"
#include "ProductTile.h"

namespace mlir::bsr {

/// The walk of a block of threads through the chunks of its group of lines: a
/// stage of shared memory holds the activations of a chunk's positions and its
/// blocks, while copies for the next stages are under way. A warp owns lines
/// and tokens. Classes that derive from it say who copies, and how.
class ChunkWalk {
public:
  virtual ~ChunkWalk() = default;

  /// Adds to sums what is in a stage, for one line, at the slabs and blocks
  /// that a word of the plan says.
  using Multiply = llvm::function_ref<SmallVector<Value>(
      Value stage, Value word, ValueRange sums)>;

  /// In the warps that multiply: the sums that `begin` returns, as many for
  /// each line of the warp, go to `finish` when `multiply` has added to them
  /// what is in all stages.
  virtual void run(llvm::function_ref<SmallVector<Value>()> begin,
                   Multiply multiply,
                   llvm::function_ref<void(ValueRange sums)> finish) = 0;

  /// Adds a block to sums, where it and its slab are in shared memory.
  using MultiplyBlock = llvm::function_ref<SmallVector<Value>(
      Value slab, Value block, ValueRange sums)>;

  /// Calls `multiply` for each block of a line's `word`, `blockOffset` and
  /// `slabOffset` bytes from where it and its slab begin.
  SmallVector<Value> addBlocks(Value stage, Value word, Value slabOffset,
                               Value blockOffset, ValueRange sums,
                               MultiplyBlock multiply);

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
  /// `scratch` begins with the arrays of `plan`; the block of threads goes
  /// through `range`; `warp` is the number of this one among those that
  /// multiply.
  ChunkWalk(const ProductShape &shape, const ProductTile &tile,
            const LinePlan &plan, ValueRange scratch, const ChunkRange &range,
            BlockBuilder &b, Value warp);

  /// Goes from one slab with a block to the next.
  SmallVector<Value> addListed(Value slabs, Value firstSlab, Value block,
                               ValueRange sums, MultiplyBlock multiply);
  /// Asks of each slab whether it has a block.
  SmallVector<Value> addScanned(Value slabs, Value firstSlab, Value block,
                                ValueRange sums, MultiplyBlock multiply);
  Value clampChunk(Value chunk) {
    return b.min(chunk, b.constant(plan.getMaxChunks() - 1));
  }
  /// The words of the warp's lines.
  SmallVector<Value> loadWords(Value chunk);
  /// The first line of the block of threads in its group.
  Value getFirstLine();
  /// `sums`, with what `multiply` adds to those of each line.
  SmallVector<Value> multiplyLines(Value stage, ValueRange words,
                                   ValueRange sums, Multiply multiply);

  const ProductShape &shape;
  const ProductTile &tile;
  const LinePlan &plan;
  BlockBuilder &b;
  Type i32;
  /// The first token of the block of threads in its batch, and the first line
  /// of the warp among those of the block of threads.
  Value tokenTile, warpLine;
  /// The plan of the group.
  Value positions, words, slots;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_CHUNKWALK_H

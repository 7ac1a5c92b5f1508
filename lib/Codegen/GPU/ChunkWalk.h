// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a block of threads brings the chunks of a plan to shared memory.

#ifndef BSR_LIB_CODEGEN_GPU_CHUNKWALK_H
#define BSR_LIB_CODEGEN_GPU_CHUNKWALK_H

#include "LinePlan.h"
#include "ProductTile.h"
#include "bsr/Codegen/Common/KernelTarget.h"

namespace mlir::bsr {

/// The walk of a block of threads through the chunks of its group of lines: a
/// stage of shared memory holds the activations of a chunk's positions and its
/// blocks, while copies for the next stages are under way. A warp owns lines
/// and tokens.
class ChunkWalk {
public:
  /// `scratch` begins with the arrays of `plan`; the block of threads goes
  /// through `range`.
  ChunkWalk(SpMMOp op, const ProductShape &shape, const ProductTile &tile,
            const LinePlan &plan, KernelBody &kernel, ValueRange scratch,
            const ChunkRange &range, BlockBuilder &b);

  /// What comes of `sums`, as many for each line of the warp, when `multiply`
  /// has added to those of each line what is in the stage, at the slabs and
  /// blocks that a word of the plan says.
  SmallVector<Value>
  run(ValueRange sums,
      llvm::function_ref<SmallVector<Value>(Value stage, Value word,
                                            ValueRange sums)>
          multiply);

  /// Calls `multiply` for each block of a line's `word` with where it and its
  /// slab are in shared memory, at `blockOffset` and `slabOffset`: it adds to
  /// the sums.
  SmallVector<Value>
  addBlocks(Value stage, Value word, Value slabOffset, Value blockOffset,
            ValueRange sums,
            llvm::function_ref<SmallVector<Value>(Value slab, Value block,
                                                  ValueRange sums)>
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

private:
  /// What a thread copies of a chunk: where it lies along the line, or which
  /// slot it is.
  struct Sources {
    SmallVector<Value> positions, slots;
  };
  /// Which piece of a block the thread copies: its part, where it begins there,
  /// in elements, and where in shared memory, in bytes.
  struct Piece {
    Value part, from, to;
  };

  Piece getPiece();
  /// The row and the column, in pieces, of a block that has rows and columns in
  /// shared memory.
  std::pair<Value, Value> getPlace();
  /// The sources of `chunk`, or of the last one that there is memory for.
  Sources loadSources(Value chunk);
  SmallVector<Value> loadPositions(Value chunk);
  /// The words of the warp's lines.
  SmallVector<Value> loadWords(Value chunk);
  Value clampChunk(Value chunk) {
    return b.min(chunk, b.constant(plan.getMaxChunks() - 1));
  }
  void copySlabs(Value stage, ArrayRef<Value> positions);
  void copyBlocks(Value stage, ArrayRef<Value> slots);
  void copyBlock(Value to, Value slot);
  /// Begins to copy `chunk`, if it is in the range.
  void copy(Value chunk, Value stage, const Sources &sources);

  const ProductShape &shape;
  const ProductTile &tile;
  const LinePlan &plan;
  BlockBuilder &b;
  Type type, i32;
  /// Elements of 16 bytes; pieces of a row of a slab, and of a block.
  int64_t elements, piecesPerRow, piecesPerBlock;

  Value warpLine;
  /// Null if each piece that a thread copies is inside: the number of bytes.
  Value tokenBytes;
  Value x, values;
  Piece piece;
  /// The plan of the group.
  Value positions, words, slots;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_CHUNKWALK_H

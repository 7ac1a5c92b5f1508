// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the threads of a block copy the chunks of a plan piece by piece.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_ASYNCCOPYMAINLOOP_H
#define BSR_LIB_CODEGEN_GPU_SPMM_ASYNCCOPYMAINLOOP_H

#include "WarpMainloop.h"
#include "bsr/Codegen/GPU/Core/AsyncCopies.h"

namespace mlir::bsr::gpu {

/// A mainloop whose threads all copy, up to 16 bytes at a time, and multiply.
class AsyncCopyMainloop : public WarpMainloop {
public:
  AsyncCopyMainloop(const SpMMContext &product, const SpMMTile &tile,
                    BlockBuilder &b);

  void run(const Multiplier &multiplier, Begin begin, Finish finish) override;

private:
  /// What a thread copies of a chunk: where it lies along the line, or which
  /// slot it is.
  struct Sources {
    SmallVector<Value> positions, slots;
  };
  /// Which piece of a block the thread copies: the block of the packed one,
  /// where it begins there, in elements, and where in shared memory, in bytes.
  struct Piece {
    Value member, from, to;
  };

  Piece getPiece();
  /// The row and the column, in pieces, of a block that has rows and columns in
  /// shared memory.
  std::pair<Value, Value> getPosition();
  /// The sources of `chunk`, or of the last one that there is memory for.
  Sources loadSources(Value chunk);
  SmallVector<Value> loadPositions(Value chunk);
  void copySlabs(Value stage, ArrayRef<Value> positions);
  void copyBlocks(Value stage, ArrayRef<Value> slots);
  void copyBlock(Value to, Value slot);

  Type type;
  /// Elements of 16 bytes; pieces of a row of a slab, and of a block.
  int64_t elements, piecesPerRow, piecesPerBlock;
  /// Null if each piece that a thread copies is inside: the number of bytes.
  Value tokenBytes;
  Value x, values;
  /// Of the slabs of a pass, the row and its piece that the thread copies.
  CopiedPiece copied;
  Piece piece;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_ASYNCCOPYMAINLOOP_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a thread block brings rows and columns of activations to shared
// memory, token after token.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_ROWMAINLOOP_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_ROWMAINLOOP_H

#include "SDDMMShape.h"
#include "bsr/Codegen/Common/KernelTarget.h"
#include "bsr/Codegen/GPU/Core/AsyncCopies.h"
#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"

namespace mlir::bsr::gpu {

/// What a thread block computes of a `bsr.sddmm`: neighbouring blocks of
/// one block row, `warpBlocks` a warp.
struct RowTile {
  SDDMMShape shape;
  int64_t warpBlocks;
  /// Blocks of a warp, side by side, of which all are brought if one is.
  int64_t united = 1;
  /// Bytes behind each row: those of 16 let 8 rows begin in different banks.
  int64_t padding = copiedBytes;
  /// Tokens of a stage, and stages.
  int64_t tokens = 0, stages = 0;

  /// The tile of `operands`, whose `warpBlocks`, `tokens` and `stages` are not
  /// set.
  static RowTile get(const BlockProduct &operands);
  /// Sets tokens and stages to the most of these that fit; false if none do.
  bool setStages(const Chip &chip, ArrayRef<int64_t> tokens);

  int64_t getBlocks() const { return blockWarps * warpBlocks; }
  /// Elements of 16 bytes.
  int64_t getElements() const { return copiedBytes / shape.elementBytes; }
  /// Of a row in shared memory.
  int64_t getPitch() const { return tokens * shape.elementBytes + padding; }
  /// The rows of the block row, and behind them the columns of its blocks.
  int64_t getRowBytes() const { return shape.getBlockRows() * getPitch(); }
  int64_t getStageBytes() const {
    return getRowBytes() + getBlocks() * shape.getBlockCols() * getPitch();
  }

  /// Emits the launch: `body` emits what a thread does.
  void launch(OpBuilder &b, Location loc,
              llvm::function_ref<void(BlockBuilder &)> body) const;
};

/// The mainloop of a thread block through all tokens: a stage of shared memory
/// holds some of the rows of the block row and of the columns of its blocks,
/// while copies for the next stages are under way. A warp copies the columns of
/// its blocks itself. Where a block row has fewer blocks than the thread block
/// may own, some warps have none.
class RowMainloop {
public:
  RowMainloop(SDDMMOp op, const RowTile &tile, KernelBody &kernel,
              BlockBuilder &b)
      : op(op), tile(tile), kernel(kernel), b(b), line(b.block[0]),
        type(op.getA().getType().getElementType()), pitch(tile.getPitch()),
        steps(tile.shape.rows.batches *
              llvm::divideCeil(tile.shape.rows.tokens, tile.tokens)) {}

  /// Calls `body`, where the thread block has a block, and then `store`
  /// with what came of `numSums` sums from 0 on: `multiply` adds to them what
  /// is in a stage.
  void run(int64_t numSums,
           llvm::function_ref<SmallVector<Value>(Value stage, ValueRange sums)>
               multiply,
           llvm::function_ref<void(ValueRange sums)> store);

  /// Calls `body` with the slot of the warp's block `number`, where it is
  /// stored.
  void withSlot(Value number, llvm::function_ref<void(Value slot)> body);

  /// Of each block of the warp, whether it is stored.
  SmallVector<Value> isStored;

private:
  /// What a thread copies of each row in a step, and how far behind the first
  /// row in a stage.
  struct StepCopy {
    CopiedPiece piece;
    CopiedTokens tokens;
    Value to;
  };
  StepCopy getStepCopy(Value thread, int64_t threads, Value step);
  /// Begins the copies of `rows` rows of `x` from each of `sources`, where the
  /// first of the first batch is, one behind the other: that of the thread's
  /// first row goes to `to`.
  void copy(const StepCopy &copy, const Activations &x, int64_t rows,
            ArrayRef<Value> sources, Value to);
  void copyRows(Value step, Value stage);
  void copyColumns(Value step, Value stage);
  void findBlocks();

  SDDMMOp op;
  const RowTile &tile;
  KernelBody &kernel;
  BlockBuilder &b;
  /// The block row, the position behind its last block, the first position of
  /// the thread block and of the warp.
  Value line, end, firstOfBlock, first;
  Type type;
  int64_t pitch;
  /// Of all batches.
  int64_t steps;
  Value a;
  /// Of each block of the warp, where its columns begin.
  SmallVector<Value> columns;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_ROWMAINLOOP_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a thread block does in the kernels of attention and of its gradient.

#ifndef BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONTHREADBLOCK_H
#define BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONTHREADBLOCK_H

#include "AttentionFragments.h"
#include "AttentionResult.h"
#include "bsr/Codegen/Common/KernelTarget.h"
#include "bsr/Codegen/GPU/Core/GPUEvaluator.h"

namespace mlir::bsr::gpu {

/// The position of a thread block, and of a lane, in an attention. Each warp
/// has 16 tokens of the one side, of queries or of keys, which are the rows of
/// its scores; all go through tiles of the other side together, whose tokens
/// are the columns.
class AttentionThreadBlock {
public:
  /// The rows of scores run along `rowDim`, of which a block has `rows`, the
  /// columns along the other dimension, `cols` at a time.
  AttentionThreadBlock(const AttentionOperands &operands, KernelBody &kernel,
                       BlockBuilder &b, unsigned rowDim, int64_t rows,
                       int64_t cols);

  static int64_t getThreads(int64_t rows) {
    return rows / fragmentRows * BlockBuilder::warpThreads;
  }

  /// Copies tokens from `first` on to `to`, in bytes of shared memory.
  void copy(const AttentionTile &operand, Value first, Value to);

  /// Goes through `getNumSteps` tiles of the other side with `stages` stages
  /// of `bytes` from `ring` on: `copyTile` copies the tile that begins at a
  /// token, `compute` goes on with what is carried. `begin` is called when all
  /// that was copied before is there.
  SmallVector<Value>
  runMainloop(Value ring, int64_t stages, int64_t bytes, ValueRange carried,
              llvm::function_ref<void(Value first, Value to)> copyTile,
              llvm::function_ref<void()> begin,
              llvm::function_ref<SmallVector<Value>(Value first, Value stage,
                                                    ValueRange carried)>
                  compute);
  /// Follows `view`, whose lines are those of blocks of rows.
  void follow(Value ptr, Value idx);

  /// The lane's row `i`, of 2, from the first of the block on; its column `j`
  /// from the first of a tile on.
  Value getRow(int64_t i) { return b.add(laneRow, i * 8); }
  Value getColumn(int64_t j) {
    return b.add(laneColumn, j / 2 * fragmentCols + j % 2);
  }
  /// The number of the sum of row `i` and column `j`.
  static int64_t getSum(int64_t i, int64_t j) {
    return j / 2 * 4 + i * 2 + j % 2;
  }
  int64_t getNumColumns() const { return cols / 4; }

  /// What is exponentiated, of the tile that begins at token `first`, and
  /// which of it the mask lets through, null if there is none.
  struct Scores {
    FragmentSums x, isLive;
  };
  Scores getScores(ValueRange products, Value first);
  /// For each column of the lane, whether its token is one; null if all are.
  SmallVector<Value> areColumns(Value first);

  /// Stores sums with a column for each feature, as `finish` makes them of
  /// those of row `i`.
  void storeRows(const AttentionResult &result, ValueRange sums,
                 llvm::function_ref<Value(Value sum, int64_t i)> finish);
  /// Calls `body` where row `i` is a token.
  void whenRow(int64_t i, llvm::function_ref<void()> body);

  Value constant(double value);
  Value add(Value x, Value y);
  Value sub(Value x, Value y);
  Value mul(Value x, Value y);
  /// exp(x) for `x` that are not far above 0.
  Value exp(Value x);
  /// Combines what the four lanes of a row have.
  Value combineLanes(Value x, llvm::function_ref<Value(Value, Value)> combine);

  const AttentionOperands &operands;
  const Attention &attention;
  KernelBody &kernel;
  BlockBuilder &b;
  const unsigned rowDim, colDim;
  const int64_t rows, cols;
  /// The point of the batch: its number, and its coordinates.
  Value batch;
  SmallVector<Value> batchAt;
  /// The first row of the block, and of the lane.
  Value firstRow, laneRow;
  bool hasFailed = false;

private:
  /// The first token of step `step`.
  Value getFirst(Value step);
  Value getNumSteps();
  /// Where an element is, at coordinates of the attention.
  SmallVector<Value> getIndices(const AttentionTensor &tensor, Value row,
                                Value col, Value feature);

  Value laneColumn;
  /// Of a pattern: its entries, the first of the line, and how many steps.
  Value idx, low, numSteps;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONTHREADBLOCK_H

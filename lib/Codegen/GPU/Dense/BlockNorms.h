// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Norms of blocks of a product, taken of its sums.

#ifndef BSR_LIB_CODEGEN_GPU_DENSE_BLOCKNORMS_H
#define BSR_LIB_CODEGEN_GPU_DENSE_BLOCKNORMS_H

#include "bsr/Codegen/GPU/Epilogue/Epilogue.h"
#include "bsr/Dialect/BSR.h"

namespace mlir::bsr::gpu {

/// The norms of the blocks of a product, which are stored instead of it. The
/// sums of a thread block go through shared memory, and lanes of a warp, at
/// most 32, add up one block of them after the other, in a fixed order.
struct BlockNorms {
  Norm norm;
  int64_t blockRows, blockCols;
  /// Blocks of the matrix.
  int64_t gridRows, gridCols;

  /// Those of `op`; none if blocks do not fill tiles: of which rows or columns
  /// are no power of 2, or more than 64.
  static std::optional<BlockNorms> match(BlockScoresOp op);

  /// Bytes of shared memory for the sums of a tile.
  static int64_t getSharedBytes(int64_t rows, int64_t cols) {
    return rows * getPitch(cols);
  }
  /// Takes the norms of a tile of `rows` by `cols` sums, of which each warp has
  /// `sums`, at coordinates in the tile, and stores them in `output`: the tile
  /// is number `tileRow` and `tileCol` of all. All threads come here, and have
  /// read what is in shared memory.
  void emit(BlockBuilder &b, int64_t rows, int64_t cols, const WarpSums &sums,
            Value tileRow, Value tileCol, Value output) const;

private:
  /// Bytes from row to row: 4 rows of pairs, or 2 of fours, lie in different
  /// banks.
  static int64_t getPitch(int64_t cols) {
    constexpr int64_t floatBytes = 4, paddedColumns = 8;
    return (cols + paddedColumns) * floatBytes;
  }
  void storeSums(BlockBuilder &b, const WarpSums &sums, int64_t pitch) const;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_DENSE_BLOCKNORMS_H

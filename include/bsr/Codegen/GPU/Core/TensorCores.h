// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels on tensor cores share: shapes of fragments, rows in shared
// memory.

#ifndef BSR_CODEGEN_GPU_CORE_TENSORCORES_H
#define BSR_CODEGEN_GPU_CORE_TENSORCORES_H

#include "bsr/Codegen/GPU/Core/BlockBuilder.h"
#include <optional>

namespace mlir::bsr::gpu {

/// Of a block.
constexpr int64_t blockThreads = 256;
constexpr int64_t blockWarps = blockThreads / BlockBuilder::warpThreads;
/// A fragment of the left operand is 16 by 16, one of the right operand 16 by
/// 8, of sums 16 by 8.
constexpr int64_t fragmentRows = 16, fragmentCols = 8;
/// Of a row of a fragment of the left operand, whatever its elements.
constexpr int64_t fragmentBytes = 32;
/// Elements have 16 bits; a copy is of 8 of them.
constexpr int64_t elementBytes = 2, copiedElements = 8, copiedBytes = 16;

/// Tokens last: `[batches, features, tokens]`.
struct Activations {
  int64_t batches = 1, features, tokens;

  /// The extents of `tensor`, whose features are dimension `featureDim`, if it
  /// is a buffer that copies of 16 bytes can read.
  static std::optional<Activations> match(Value tensor, int64_t featureDim);
};

/// True if `tensor`, which a product reads in a step or in a cluster, is in
/// memory then: what is computed where it is used is not.
bool isLoaded(Value tensor);

/// True if tensor cores multiply numbers of `type` here; with `tf32` rounded
/// ones, too.
inline bool isMultiplied(Type type, bool tf32 = false) {
  return type.isBF16() || type.isF16() || (tf32 && type.isF32());
}

/// True if sums are stored as `type`, by kernels for operands of `operandType`.
inline bool isStored(Type type, Type operandType) {
  return type == operandType || type.isF32();
}

/// True if fragments cover blocks of `type` with `extent` rows or columns, of
/// 16-bit elements one or several beside each other.
inline bool isCovered(int64_t extent, Type type) {
  return extent >= (type.isF32() ? fragmentRows : 4) && extent <= 64 &&
         llvm::isPowerOf2_64(extent);
}

/// True if blocks with `extent` rows or columns are multiplied element by
/// element.
inline bool isLane(int64_t extent) {
  return extent <= 64 && llvm::isPowerOf2_64(extent);
}

/// The lane's row of four 8x8 matrices, and which 8 columns it is in: these are
/// the quarters of one of 16x16, the second of which is below the first, or,
/// with `rowsLast`, beside it.
struct MatrixPosition {
  Value row, column;
};
MatrixPosition getMatrixPosition(BlockBuilder &b, bool rowsLast);
/// Where that row begins, in bytes.
Value getMatrixRow(BlockBuilder &b, int64_t pitch, bool rowsLast);

/// Where kernels store sums of fragments: a buffer whose rows are cut in
/// vectors that a lane stores at once, `[..., columns / length, length]`.
struct StoredRows {
  Value vectors;
  /// Of a row.
  int64_t columns;
  /// Elements of a vector.
  int64_t length;
};

/// `memref`, whose elements follow each other, as a buffer of shape `sizes`.
Value createView(OpBuilder &b, Location loc, Value memref,
                 ArrayRef<int64_t> sizes);

/// `memref` as `[sizes..., columns]`, where `sizes` may merge dimensions, in
/// vectors of `length`, which divides the columns; without, in vectors of 8
/// bytes.
StoredRows createRows(OpBuilder &b, Location loc, Value memref,
                      ArrayRef<int64_t> sizes, int64_t columns,
                      int64_t length = 0);

/// Two sums as one register of 16-bit elements of `type`.
Value packPair(BlockBuilder &b, ValueRange sums, Type type);

/// Stores `sums`, a vector, from `column` on, which its length divides; if
/// `isRagged`, none beyond the last column.
void storeVector(BlockBuilder &b, ValueRange sums, const StoredRows &rows,
                 ValueRange row, Value column, bool isRagged);

/// Stores the row of the lane in neighbouring fragments, two of whose sums of
/// each are `sums`, from `column` on, which 16 divides. Of columns beyond the
/// last, if `isRagged`, none. 16-bit elements are exchanged between lanes, so
/// that whole sectors of 32 bytes are written.
void storeRow(BlockBuilder &b, ValueRange sums, const StoredRows &rows,
              ValueRange row, Value column, bool isRagged);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_TENSORCORES_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels on tensor cores share: shapes of fragments, rows in shared
// memory.

#ifndef BSR_LIB_CODEGEN_GPU_TENSORCORES_H
#define BSR_LIB_CODEGEN_GPU_TENSORCORES_H

#include "BlockBuilder.h"
#include <optional>

namespace mlir::bsr {

/// Of a block; 8 warps.
constexpr int64_t blockThreads = 256;
/// A fragment of the left operand is 16 by 16, one of the right operand 16 by
/// 8, of sums 16 by 8.
constexpr int64_t fragmentRows = 16, fragmentCols = 8;
/// Elements have 16 bits; a copy is of 8 of them.
constexpr int64_t elementBytes = 2, copiedElements = 8, copiedBytes = 16;

/// Bytes of a row of `length` elements in shared memory, an odd multiple of 16:
/// the first 16 bytes of 8 rows lie in different banks.
inline int64_t getPitch(int64_t length) {
  return length == copiedElements ? copiedBytes
                                  : (length + copiedElements) * elementBytes;
}

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

/// True if tensor cores multiply numbers of `type` here.
inline bool isMultiplied(Type type) { return type.isBF16() || type.isF16(); }

/// True if sums are stored as `type`, by kernels for operands of `operandType`.
inline bool isStored(Type type, Type operandType) {
  return type == operandType || type.isF32();
}

/// True if fragments cover blocks with `extent` rows or columns, one or several
/// beside each other.
inline bool isCovered(int64_t extent) {
  return extent >= 4 && extent <= 64 && llvm::isPowerOf2_64(extent);
}

/// True if blocks with `extent` rows or columns are multiplied element by
/// element.
inline bool isLane(int64_t extent) {
  return extent <= 64 && llvm::isPowerOf2_64(extent);
}

/// Where the lane's row of four 8x8 matrices begins, in bytes, which are the
/// quarters of one of 16x16: the second is below the first, or, with
/// `rowsLast`, beside it.
Value getMatrixRow(BlockBuilder &b, int64_t pitch, bool rowsLast);

/// A matrix in shared memory, of which a lane loads fragments of 16 by 16:
/// where its row of each begins.
class MatrixRows {
public:
  /// Rows are `pitch` bytes apart, an odd multiple of 16.
  static MatrixRows getPadded(BlockBuilder &b, int64_t pitch, bool rowsLast);
  /// Rows have 32, 64 or 128 bytes and are swizzled as tensor copies do it;
  /// what follows in a row lies `partBytes` further on.
  static MatrixRows getSwizzled(BlockBuilder &b, int64_t rowBytes,
                                int64_t partBytes, bool rowsLast);

  /// The first fragment, in bytes from where the matrix begins.
  Value getFirst() const { return offsets.front(); }
  /// That of 16 rows and columns from `row` and `column` on, which 16 divides;
  /// `first` is the address of the first one.
  Value at(BlockBuilder &b, Value first, int64_t row, int64_t column) const;

private:
  int64_t pitch = 0, partBytes = 0;
  /// Of the fragments side by side that begin in different banks.
  SmallVector<Value, 4> offsets;
  /// From the first to the others.
  SmallVector<Value, 4> steps;
};

/// Where the stage behind `stage` begins in shared memory, of `stages` of
/// `bytes` each that follow each other in a ring.
Value getNextStage(BlockBuilder &b, Value stage, int64_t bytes, int64_t stages);

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

/// Stores `sums`, a vector, from `column` on, which its length divides; if
/// `isRagged`, none beyond the last column.
void storeVector(BlockBuilder &b, ValueRange sums, const StoredRows &rows,
                 ValueRange row, Value column, bool isRagged);

/// Stores the row of the lane in two neighbouring fragments of sums, of each of
/// which `first` and `second` are two, from `column` on, which 16 divides. Of
/// columns beyond the last, if `isRagged`, none. 16-bit elements are exchanged
/// between lanes, so that whole sectors of 32 bytes are written.
void storeSums(BlockBuilder &b, ValueRange first, ValueRange second,
               const StoredRows &rows, ValueRange row, Value column,
               bool isRagged);

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_TENSORCORES_H

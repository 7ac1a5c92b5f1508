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

/// What a step has of activations, of which steps have so many tokens each,
/// batch after batch: its batch, and its first token there.
struct StepTokens {
  Value batch, first;
};
StepTokens getStepTokens(BlockBuilder &b, const Activations &x, int64_t tokens,
                         Value step);

/// What a copy of 16 bytes brings of a step: its batch, its first token, and
/// how many bytes; null for all. Where it begins beyond the last token, it
/// brings none, from the first one on.
struct CopiedTokens {
  Value batch, first, bytes;
};
/// The copy that begins `offset` tokens into the step.
CopiedTokens getCopiedTokens(BlockBuilder &b, const Activations &x,
                             int64_t tokens, Value step, Value offset);

/// Which piece of 16 bytes of the rows of a pass a thread copies, and how many
/// rows a pass has.
struct CopiedPiece {
  Value row, piece;
  int64_t passRows;

  /// Calls `copy` for the passes through `rows` rows, whose first rows it gets,
  /// where the thread copies a piece of one.
  void forPasses(BlockBuilder &b, int64_t rows,
                 llvm::function_ref<void(int64_t first)> copy) const;
};
/// The piece of `thread`, of `threads`, of rows of `perRow` pieces that begin
/// `pitch` bytes apart. Where a row is shorter than 128 bytes, 8 neighbouring
/// threads copy rows so far apart that they write to different banks, if there
/// are any: with a padding of one piece, as many as a row has pieces.
CopiedPiece getCopiedPiece(BlockBuilder &b, Value thread, int64_t threads,
                           int64_t perRow, int64_t pitch);

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

/// Where the lane's row of four 8x8 matrices begins, in bytes, which are the
/// quarters of one of 16x16: the second is below the first, or, with
/// `rowsLast`, beside it.
Value getMatrixRow(BlockBuilder &b, int64_t pitch, bool rowsLast);

/// How tensor cores multiply elements of a type, 16-bit ones or f32, which is
/// rounded to tf32. They go through shared memory in units of 16 by 16
/// elements, of numbers of an operand's own and of inner numbers, which lie
/// side by side if it `isInnerLast`; else its own do. A unit of the left
/// operand is one or two fragments along inner numbers, of the right one as
/// many for 8 of its own numbers each.
class Fragments {
public:
  explicit Fragments(Type type)
      : elementBytes(type.getIntOrFloatBitWidth() / 8), type(type) {}

  /// Bytes of a row of `length` elements in shared memory, so that what is
  /// loaded at one time lies in different banks.
  static int64_t getPitch(int64_t length, int64_t elementBytes,
                          bool isInnerLast);
  /// How far behind the first element of a unit what the lane loads begins, in
  /// bytes, in rows `pitch` apart.
  Value getLanePlace(BlockBuilder &b, int64_t pitch, bool isInnerLast,
                     bool isLeft) const;
  /// The lane's registers of the unit whose first element is at `pointer`,
  /// which is moved by the lane's place.
  SmallVector<Value, 8> load(BlockBuilder &b, Value pointer, int64_t pitch,
                             bool isInnerLast, bool isLeft) const;
  /// Adds to `sum`, a fragment, the product of a unit of the left operand and
  /// of half `half` of one of the right.
  void multiplyAdd(BlockBuilder &b, ArrayRef<Value> left, ArrayRef<Value> right,
                   int64_t half, MutableArrayRef<Value> sum) const;

  const int64_t elementBytes;

private:
  Type type;
};

/// A matrix in shared memory, of which a lane loads units of 16 by 16: where
/// its part of each begins.
class MatrixRows {
public:
  /// Rows are `pitch` bytes apart, for `Fragments::load`.
  static MatrixRows getPadded(BlockBuilder &b, const Fragments &fragments,
                              int64_t pitch, bool isInnerLast, bool isLeft);
  /// Rows of 16-bit elements have 32, 64 or 128 bytes and are swizzled as
  /// tensor copies do it; what follows in a row lies `partBytes` further on.
  static MatrixRows getSwizzled(BlockBuilder &b, int64_t rowBytes,
                                int64_t partBytes, bool rowsLast);

  /// The first unit, in bytes from where the matrix begins.
  Value getFirst() const { return offsets.front(); }
  /// That of 16 rows and columns from `row` and `column` on, which 16 divides;
  /// `first` is the address of the first one.
  Value at(BlockBuilder &b, Value first, int64_t row, int64_t column) const;

private:
  int64_t elementBytes = 0, pitch = 0, partBytes = 0;
  /// Of the units side by side that begin in different banks.
  SmallVector<Value, 4> offsets;
  /// From the first to the others.
  SmallVector<Value, 4> steps;
};

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

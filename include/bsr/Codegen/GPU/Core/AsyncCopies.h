// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the threads of a block bring operands to shared memory, piece by piece.

#ifndef BSR_CODEGEN_GPU_CORE_ASYNCCOPIES_H
#define BSR_CODEGEN_GPU_CORE_ASYNCCOPIES_H

#include "bsr/Codegen/GPU/Core/TensorCores.h"

namespace mlir::bsr::gpu {

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
  /// Begins the copies of all passes to rows `pitch` bytes apart: that of the
  /// first row goes to `to`; `find` returns where that of a row is in global
  /// memory. Of fewer than 16 `bytes`, the rest becomes zeros; null is all.
  void copyRows(BlockBuilder &b, int64_t rows, Value to, int64_t pitch,
                llvm::function_ref<Value(int64_t first)> find,
                Value bytes) const;
  /// The same for a number of rows that is known when the kernel runs. `to` is
  /// in bytes of shared memory; `find` is asked for each row.
  void copyRows(BlockBuilder &b, Value rows, Value to, int64_t pitch,
                llvm::function_ref<Value(Value row)> find, Value bytes) const;
};
/// The piece of `thread`, of `threads`, of rows of `perRow` pieces that begin
/// `pitch` bytes apart. Where a row is shorter than 128 bytes, 8 neighbouring
/// threads copy rows so far apart that they write to different banks, if there
/// are any: with a padding of one piece, as many as a row has pieces.
CopiedPiece getCopiedPiece(BlockBuilder &b, Value thread, int64_t threads,
                           int64_t perRow, int64_t pitch);

/// A matrix that all threads of a block copy to shared memory, piece by piece,
/// where its rows lie as in global memory.
struct PieceCopy {
  Type type;
  /// Rows in shared memory, elements of each, and of a piece.
  int64_t rows, length, copied;
  /// Bytes from row to row.
  int64_t pitch;
  /// 16 bytes of a row are at position `i ^ row / 4 % 8`.
  bool isSwizzled = false;

  /// Where an element lies behind the first one in global memory, and whether
  /// it is one of the operand, null if all are: else zeros are copied, which
  /// add nothing.
  struct Source {
    Value offset, isInside;
  };
  /// Begins the copies of one of `threads` threads to `to`, in bytes of shared
  /// memory; `find` is asked for the first element of each piece.
  void emit(BlockBuilder &b, int64_t threads, Value pointer, Value to,
            llvm::function_ref<Source(Value row, Value column)> find) const;
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_ASYNCCOPIES_H

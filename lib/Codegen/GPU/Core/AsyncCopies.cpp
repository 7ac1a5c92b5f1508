// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the threads of a block bring operands to shared memory, piece by piece.

#include "bsr/Codegen/GPU/Core/AsyncCopies.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

void CopiedPiece::forPasses(BlockBuilder &b, int64_t rows,
                            llvm::function_ref<void(int64_t)> copy) const {
  auto copyAll = [&] {
    for (int64_t first = 0; first < rows; first += passRows)
      copy(first);
  };
  // Of fewer rows than a pass has, some threads copy nothing.
  if (passRows <= rows)
    copyAll();
  else
    b.when(b.less(row, b.constant(rows)), copyAll);
}

void CopiedPiece::copyRows(BlockBuilder &b, int64_t rows, Value to,
                           int64_t pitch,
                           llvm::function_ref<Value(int64_t)> find,
                           Value bytes) const {
  forPasses(b, rows, [&](int64_t first) {
    Value from = find(first);
    b.copyAsync(b.at(to, first * pitch, b.b.getI8Type()), from, bytes);
  });
}

void CopiedPiece::copyRows(BlockBuilder &b, Value rows, Value to, int64_t pitch,
                           llvm::function_ref<Value(Value)> find,
                           Value bytes) const {
  to = b.sub(to, b.mul(row, pitch));
  b.loop(row, rows, passRows, {}, [&](Value copied, ValueRange) {
    b.copyAsync(b.at(b.multiplyAdd(copied, pitch, to)), find(copied), bytes);
    return SmallVector<Value>();
  });
}

CopiedPiece bsr::gpu::getCopiedPiece(BlockBuilder &b, Value thread,
                                     int64_t threads, int64_t perRow,
                                     int64_t pitch) {
  Value row = b.div(thread, perRow), piece = b.rem(thread, perRow);
  int64_t passRows = threads / perRow;
  if (perRow >= 8)
    return {row, piece, passRows};
  // Of 8 rows, those that 8 threads copy are `apart`.
  int64_t together = 8 / perRow;
  int64_t apart = std::max<int64_t>(
      1, perRow >> llvm::countr_zero<uint64_t>(pitch / copiedBytes));
  Value turn = b.rem(b.div(row, together), perRow);
  Value position =
      b.multiplyAdd(b.rem(row, together), apart, b.rem(turn, apart));
  position = b.multiplyAdd(b.div(turn, apart), apart * together, position);
  return {b.multiplyAdd(b.div(row, 8), 8, position), piece, passRows};
}

StepTokens bsr::gpu::getStepTokens(BlockBuilder &b, const Activations &x,
                                   int64_t tokens, Value step) {
  Value batch = b.constant(0);
  if (x.batches != 1) {
    int64_t ofBatch = llvm::divideCeil(x.tokens, tokens);
    batch = b.div(step, ofBatch);
    step = b.rem(step, ofBatch);
  }
  return {batch, b.mul(step, tokens)};
}

CopiedTokens bsr::gpu::getCopiedTokens(BlockBuilder &b, const Activations &x,
                                       int64_t tokens, Value step,
                                       Value offset) {
  auto [batch, begin] = getStepTokens(b, x, tokens, step);
  CopiedTokens copied{batch, b.add(begin, offset), /*bytes=*/Value()};
  if (x.tokens % tokens) {
    Value isInside = b.less(copied.first, b.constant(x.tokens));
    copied.bytes = b.select(isInside, b.constant(copiedBytes), b.constant(0));
    copied.first = b.select(isInside, copied.first, b.constant(0));
  }
  return copied;
}

void PieceCopy::emit(
    BlockBuilder &b, int64_t threads, Value pointer, Value to,
    llvm::function_ref<Source(Value row, Value column)> find) const {
  int64_t elementBytes = type.getIntOrFloatBitWidth() / 8;
  int64_t bytes = copied * elementBytes, perRow = length / copied;
  auto copy = [&](Value row, Value piece) {
    Value column = b.mul(piece, copied);
    auto [offset, isInside] = find(row, column);
    Value size;
    if (isInside) {
      size = b.select(isInside, b.constant(bytes), b.constant(0));
      offset = b.select(isInside, offset, b.constant(0));
    }
    Value inRow = b.mul(column, elementBytes);
    if (isSwizzled)
      inRow = b.bitXor(inRow, b.mul(b.rem(b.div(row, 4), 8), copiedBytes));
    b.copyAsync(b.at(b.add(to, b.multiplyAdd(row, pitch, inRow))),
                b.at(pointer, offset, type), size, bytes);
  };
  int64_t count = rows * perRow;
  for (int64_t done = 0; done < count; done += threads) {
    Value number = b.add(b.thread, done);
    auto copyPiece = [&] {
      // Whole rows of a pass: the thread has one column in all of them.
      if (threads % perRow == 0)
        copy(b.add(b.div(b.thread, perRow), done / perRow),
             b.rem(b.thread, perRow));
      else
        copy(b.div(number, perRow), b.rem(number, perRow));
    };
    if (done + threads <= count)
      copyPiece();
    else
      b.when(b.less(number, b.constant(count)), copyPiece);
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a block of threads brings rows and columns of activations to shared
// memory, token after token.

#include "SDDMMWalk.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "bsr/Codegen/GPU/Core/Reshapes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

SDDMMTile SDDMMTile::get(const BlockProduct &operands) {
  SDDMMTile tile;
  tile.pattern = operands.pattern;
  tile.rows = operands.activations[0];
  tile.cols = operands.activations[1];
  tile.elementBytes = operands.getElementBytes();
  return tile;
}

bool SDDMMTile::setStages(const Chip &chip, ArrayRef<int64_t> choices) {
  for (int64_t choice : choices) {
    tokens = choice;
    stages = CopyPipeline::getStages(chip.sharedLimit, getStageBytes(),
                                     /*most=*/4);
    if (stages >= 2)
      return true;
  }
  return false;
}

void SDDMMTile::launch(OpBuilder &b, Location loc,
                       llvm::function_ref<void(BlockBuilder &)> body) const {
  int64_t parts = llvm::divideCeil(pattern.getGridCols(), getBlocks());
  BlockBuilder::launch(b, loc, {pattern.getGridRows(), parts}, blockThreads,
                       stages * getStageBytes(), body);
}

void SDDMMWalk::copyRows(Value step, Value stage) {
  int64_t blockRows = tile.pattern.getBlockRows();
  int64_t perRow = tile.tokens / tile.getElements();
  int64_t rowsPerPass = blockThreads / perRow;
  auto [row, piece] = getCopiedPiece(b, b.thread, perRow, pitch);
  auto copy = [&, row = row, piece = piece] {
    CopiedTokens tokens = getCopiedTokens(b, tile.rows, tile.tokens, step,
                                          b.mul(piece, tile.getElements()));
    Value from =
        b.atFar(a, tokens.batch, tile.rows.features * tile.rows.tokens, type);
    from = b.at(from, b.multiplyAdd(row, tile.rows.tokens, tokens.first), type);
    Value to = b.at(
        b.add(stage, b.multiplyAdd(row, pitch, b.mul(piece, copiedBytes))));
    for (int64_t first = 0; first < blockRows; first += rowsPerPass)
      b.copyAsync(b.at(to, first * pitch, b.b.getI8Type()),
                  b.at(from, first * tile.rows.tokens, type), tokens.bytes);
  };
  if (rowsPerPass <= blockRows)
    copy();
  else
    b.when(b.less(row, b.constant(blockRows)), copy);
}

void SDDMMWalk::copyColumns(Value step, Value stage) {
  int64_t blockCols = tile.pattern.getBlockCols();
  int64_t perRow = tile.tokens / tile.getElements();
  int64_t rowsPerPass = BlockBuilder::warpThreads / perRow;
  auto [row, piece] = getCopiedPiece(b, b.lane, perRow, pitch);
  CopiedTokens tokens = getCopiedTokens(b, tile.rows, tile.tokens, step,
                                        b.mul(piece, tile.getElements()));
  Value to = b.multiplyAdd(b.warp, tile.warpBlocks * blockCols * pitch,
                           b.mul(piece, copiedBytes));
  to = b.at(
      b.add(b.add(b.multiplyAdd(row, pitch, stage), to), tile.getRowBytes()));
  auto copyBlock = [&, row = row](int64_t block) {
    Value from = b.atFar(columns[block], tokens.batch,
                         tile.cols.features * tile.cols.tokens, type);
    from = b.at(from, b.multiplyAdd(row, tile.cols.tokens, tokens.first), type);
    for (int64_t first = 0; first < blockCols; first += rowsPerPass)
      b.copyAsync(
          b.at(to, (block * blockCols + first) * pitch, b.b.getI8Type()),
          b.at(from, first * tile.cols.tokens, type), tokens.bytes);
  };
  for (int64_t first = 0; first != tile.warpBlocks; first += tile.united)
    b.when(isStored[first], [&, row = row] {
      auto copyAll = [&] {
        for (int64_t block = first; block != first + tile.united; ++block)
          copyBlock(block);
      };
      // Of small blocks, some lanes copy nothing.
      if (blockCols >= rowsPerPass)
        copyAll();
      else
        b.when(b.less(row, b.constant(blockCols)), copyAll);
    });
}

void SDDMMWalk::findBlocks() {
  const PatternView &view = kernel.patterns.at({op.getPattern(), View::Rows});
  first = b.add(firstOfBlock, b.mul(b.warp, tile.warpBlocks));
  a = b.atFar(b.getPointer(kernel.inputs.lookup(skipReshapes(op.getA()))), line,
              tile.pattern.getBlockRows() * tile.rows.tokens, type);
  Value all = b.getPointer(kernel.inputs.lookup(skipReshapes(op.getB())));
  for (int64_t block = 0; block != tile.warpBlocks; ++block) {
    Value position = b.add(first, block);
    isStored.push_back(b.less(position, end));
    // Of one that is not stored, any columns will do.
    Value column =
        b.load(view.idx, b.select(isStored.back(), position, firstOfBlock));
    columns.push_back(b.atFar(
        all, column, tile.pattern.getBlockCols() * tile.cols.tokens, type));
  }
}

void SDDMMWalk::withSlot(Value number, llvm::function_ref<void(Value)> body) {
  const PatternView &view = kernel.patterns.at({op.getPattern(), View::Rows});
  Value position = b.add(first, number);
  b.when(b.less(position, end), [&] { body(b.load(view.slot, position)); });
}

void SDDMMWalk::run(
    int64_t numSums,
    llvm::function_ref<SmallVector<Value>(Value, ValueRange)> multiply,
    llvm::function_ref<void(ValueRange)> store) {
  const PatternView &view = kernel.patterns.at({op.getPattern(), View::Rows});
  Value start = b.load(view.ptr, line);
  end = b.load(view.ptr, b.add(line, 1));
  firstOfBlock = b.add(start, b.mul(b.block[1], tile.getBlocks()));
  b.when(b.less(firstOfBlock, end), [&] {
    findBlocks();
    auto copy = [&](Value step, Value stage, ValueRange) {
      copyRows(step, stage);
      copyColumns(step, stage);
    };
    SmallVector<Value> sums =
        CopyPipeline(b, tile.stages, tile.getStageBytes())
            .run(
                {b.constant(0), b.constant(steps)}, copy,
                [&] { return b.zeros(numSums); },
                [&](Value, Value stage, ValueRange, ValueRange sums) {
                  return multiply(stage, sums);
                });
    store(sums);
  });
}

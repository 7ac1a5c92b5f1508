// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a thread block brings rows and columns of activations to shared
// memory, token after token.

#include "RowMainloop.h"
#include "bsr/Codegen/GPU/Core/AsyncCopies.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "bsr/Codegen/GPU/Core/Reshapes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

RowTile RowTile::get(const BlockProduct &operands) {
  RowTile tile;
  tile.shape = SDDMMShape::get(operands);
  return tile;
}

bool RowTile::setStages(const Chip &chip, ArrayRef<int64_t> choices) {
  for (int64_t choice : choices) {
    tokens = choice;
    stages = CopyPipeline::getStages(chip.sharedLimit, getStageBytes(),
                                     /*most=*/4);
    if (stages >= 2)
      return true;
  }
  return false;
}

void RowTile::launch(OpBuilder &b, Location loc,
                     llvm::function_ref<void(BlockBuilder &)> body) const {
  int64_t blocksPerRow =
      llvm::divideCeil(shape.pattern.getGridCols(), getBlocks());
  BlockBuilder::launch(b, loc, {shape.pattern.getGridRows(), blocksPerRow},
                       blockThreads, stages * getStageBytes(), body);
}

void RowMainloop::copyRows(Value step, Value stage) {
  int64_t perRow = tile.tokens / tile.getElements();
  CopiedPiece copied = getCopiedPiece(b, b.thread, blockThreads, perRow, pitch);
  copied.forPasses(b, tile.shape.getBlockRows(), [&](int64_t first) {
    const Activations &rows = tile.shape.rows;
    CopiedTokens tokens = getCopiedTokens(
        b, rows, tile.tokens, step, b.mul(copied.piece, tile.getElements()));
    Value from = b.atFar(a, tokens.batch, rows.features * rows.tokens, type);
    from =
        b.at(from, b.multiplyAdd(copied.row, rows.tokens, tokens.first), type);
    Value to =
        b.at(b.add(stage, b.multiplyAdd(copied.row, pitch,
                                        b.mul(copied.piece, copiedBytes))));
    b.copyAsync(b.at(to, first * pitch, b.b.getI8Type()),
                b.at(from, first * rows.tokens, type), tokens.bytes);
  });
}

void RowMainloop::copyColumns(Value step, Value stage) {
  int64_t blockCols = tile.shape.getBlockCols();
  int64_t perRow = tile.tokens / tile.getElements();
  CopiedPiece copied =
      getCopiedPiece(b, b.lane, BlockBuilder::warpThreads, perRow, pitch);
  const Activations &cols = tile.shape.cols;
  CopiedTokens tokens =
      getCopiedTokens(b, tile.shape.rows, tile.tokens, step,
                      b.mul(copied.piece, tile.getElements()));
  Value to = b.multiplyAdd(b.warp, tile.warpBlocks * blockCols * pitch,
                           b.mul(copied.piece, copiedBytes));
  to = b.at(b.add(b.add(b.multiplyAdd(copied.row, pitch, stage), to),
                  tile.getRowBytes()));
  auto copyPiece = [&](int64_t block, int64_t first) {
    Value from = b.atFar(columns[block], tokens.batch,
                         cols.features * cols.tokens, type);
    from =
        b.at(from, b.multiplyAdd(copied.row, cols.tokens, tokens.first), type);
    b.copyAsync(b.at(to, (block * blockCols + first) * pitch, b.b.getI8Type()),
                b.at(from, first * cols.tokens, type), tokens.bytes);
  };
  for (int64_t united = 0; united != tile.warpBlocks; united += tile.united)
    b.when(isStored[united], [&] {
      copied.forPasses(b, blockCols, [&](int64_t first) {
        for (int64_t block = united; block != united + tile.united; ++block)
          copyPiece(block, first);
      });
    });
}

void RowMainloop::findBlocks() {
  const PatternView &view = kernel.patterns.at({op.getPattern(), View::Rows});
  first = b.add(firstOfBlock, b.mul(b.warp, tile.warpBlocks));
  a = b.atFar(b.getPointer(kernel.inputs.lookup(skipReshapes(op.getA()))), line,
              tile.shape.getBlockRows() * tile.shape.rows.tokens, type);
  Value all = b.getPointer(kernel.inputs.lookup(skipReshapes(op.getB())));
  for (int64_t block = 0; block != tile.warpBlocks; ++block) {
    Value position = b.add(first, block);
    isStored.push_back(b.less(position, end));
    // Of one that is not stored, any columns will do.
    Value column =
        b.load(view.idx, b.select(isStored.back(), position, firstOfBlock));
    columns.push_back(b.atFar(
        all, column, tile.shape.getBlockCols() * tile.shape.cols.tokens, type));
  }
}

void RowMainloop::withSlot(Value number, llvm::function_ref<void(Value)> body) {
  const PatternView &view = kernel.patterns.at({op.getPattern(), View::Rows});
  Value position = b.add(first, number);
  b.when(b.less(position, end), [&] { body(b.load(view.slot, position)); });
}

void RowMainloop::run(
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

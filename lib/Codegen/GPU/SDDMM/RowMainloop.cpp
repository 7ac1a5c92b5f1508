// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a thread block brings rows and columns of activations to shared
// memory, token after token.

#include "RowMainloop.h"
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

RowMainloop::StepCopy RowMainloop::getStepCopy(Value thread, int64_t threads,
                                               Value step) {
  int64_t perRow = tile.tokens / tile.getElements();
  CopiedPiece piece = getCopiedPiece(b, thread, threads, perRow, pitch);
  CopiedTokens tokens = getCopiedTokens(b, tile.shape.rows, tile.tokens, step,
                                        b.mul(piece.piece, tile.getElements()));
  Value to = b.multiplyAdd(piece.row, pitch, b.mul(piece.piece, copiedBytes));
  return {piece, tokens, to};
}

void RowMainloop::copy(const StepCopy &copy, const Activations &x, int64_t rows,
                       ArrayRef<Value> sources, Value to) {
  const CopiedPiece &piece = copy.piece;
  const CopiedTokens &tokens = copy.tokens;
  piece.forPasses(b, rows, [&](int64_t first) {
    for (auto [number, source] : llvm::enumerate(sources)) {
      Value from = b.atFar(source, tokens.batch, x.features * x.tokens, type);
      from = b.at(from, b.multiplyAdd(piece.row, x.tokens, tokens.first), type);
      b.copyAsync(b.at(to, (number * rows + first) * pitch, b.b.getI8Type()),
                  b.at(from, first * x.tokens, type), tokens.bytes);
    }
  });
}

void RowMainloop::copyRows(Value step, Value stage) {
  StepCopy ofThread = getStepCopy(b.thread, blockThreads, step);
  copy(ofThread, tile.shape.rows, tile.shape.getBlockRows(), a,
       b.at(b.add(stage, ofThread.to)));
}

void RowMainloop::copyColumns(Value step, Value stage) {
  int64_t blockCols = tile.shape.getBlockCols();
  StepCopy ofLane = getStepCopy(b.lane, BlockBuilder::warpThreads, step);
  Value to = b.multiplyAdd(b.warp, tile.warpBlocks * blockCols * pitch,
                           b.add(stage, ofLane.to));
  to = b.at(b.add(to, tile.getRowBytes()));
  for (int64_t block = 0; block != tile.warpBlocks; block += tile.united)
    b.when(isStored[block], [&] {
      copy(ofLane, tile.shape.cols, blockCols,
           ArrayRef(columns).slice(block, tile.united),
           b.at(to, block * blockCols * pitch, b.b.getI8Type()));
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

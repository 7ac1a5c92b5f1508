// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the threads of a block copy the chunks of a plan piece by piece.

#include "AsyncCopyMainloop.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "bsr/Codegen/GPU/Core/Reshapes.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

AsyncCopyMainloop::AsyncCopyMainloop(const SpMMContext &product,
                                     const SpMMTile &tile, BlockBuilder &b)
    : WarpMainloop(product, tile, b, b.warp),
      type(getElementTypeOrSelf(SpMMOp(product.op).getX())),
      elements(copiedBytes / shape.elementBytes),
      piecesPerRow(tile.tokens / elements), piecesPerBlock(shape.getPieces()) {
  SpMMOp op = product.op;
  const KernelBody &kernel = product.launch.kernel;
  const Activations &activations = shape.activations;
  // What a thread copies: one piece of a row of activations, of several rows.
  copied =
      getCopiedPiece(b, b.thread, blockThreads, piecesPerRow, layout.slabPitch);
  Value token = b.multiplyAdd(copied.piece, elements, tokenTile);
  if (areTokensRagged) {
    Value isInside = b.less(token, b.constant(activations.tokens));
    tokenBytes = b.select(isInside, b.constant(copiedBytes), b.constant(0));
    token = b.select(isInside, token, b.constant(0));
  }
  Value row = b.rem(copied.row, shape.inBlock);
  ArrayRef<int64_t> xShape = op.getX().getType().getShape().take_back(2);
  x = b.atFar(b.getPointer(kernel.inputs.lookup(skipReshapes(op.getX()))),
              batch, xShape[0] * xShape[1], type);
  x = b.at(x, b.multiplyAdd(row, activations.tokens, token), type);
  piece = getPiece();
  values = b.at(b.getPointer(kernel.inputs.lookup(op.getValues())), piece.from,
                type);
}

std::pair<Value, Value> AsyncCopyMainloop::getPosition() {
  int64_t rows = shape.getRows();
  Value number = b.rem(b.thread, piecesPerBlock);
  if (shape.blockCols >= 2 * elements) {
    // Two neighbours are a sector of 32 bytes of global memory, 8 lie in
    // different banks of shared memory: in every other row, or, where rows are
    // an even multiple of 16 bytes apart, in every one.
    Value upper = b.div(number, 16);
    Value row = b.multiplyAdd(b.rem(b.div(number, 2), 4), 2,
                              b.rem(b.div(number, 8), 2));
    if (layout.blockPitch / copiedBytes % 2 == 0)
      row = b.rem(b.div(number, 2), 8);
    row = b.multiplyAdd(b.rem(upper, rows / 8), 8, row);
    return {row, b.multiplyAdd(b.div(upper, rows / 8), 2, b.rem(number, 2))};
  }
  // Rows of a block lie side by side in global memory; what 128 bytes of copies
  // write lies in different banks: pieces of 16 bytes of 8 rows, or of 8 bytes
  // in 2 columns of 4 to 8 rows.
  int64_t low = shape.getPieceElements() == elements
                    ? 8
                    : std::min<int64_t>(shape.blockRows, 8);
  int64_t columns = shape.getCols() / shape.getPieceElements();
  int64_t side = std::min<int64_t>(columns, 2);
  Value upper = b.div(number, low * side);
  Value row = b.multiplyAdd(b.rem(upper, rows / low), low, b.rem(number, low));
  Value column = b.rem(b.div(number, low), side);
  return {row, b.multiplyAdd(b.div(upper, rows / low), side, column)};
}

AsyncCopyMainloop::Piece AsyncCopyMainloop::getPiece() {
  if (!shape.isPadded()) {
    // A block lies in shared memory as it does in global memory.
    Value number = b.rem(b.thread, piecesPerBlock);
    Value from = b.mul(number, shape.getPieceElements());
    return {b.constant(0), from, b.mul(from, shape.elementBytes)};
  }
  int64_t length = shape.getPieceElements();
  auto [row, piece] = getPosition();
  Value column = b.mul(piece, length);
  Value to =
      b.multiplyAdd(row, layout.blockPitch, b.mul(column, shape.elementBytes));
  int64_t across = shape.getCols() / shape.blockCols;
  Value down = b.div(row, shape.blockRows);
  Value side = b.div(column, shape.blockCols);
  // Blocks of a packed one are in the order of lines.
  Value member =
      shape.inputsAreRows
          ? b.multiplyAdd(side, shape.getRows() / shape.blockRows, down)
          : b.multiplyAdd(down, across, side);
  Value from = b.multiplyAdd(b.rem(row, shape.blockRows), shape.blockCols,
                             b.rem(column, shape.blockCols));
  return {member, from, to};
}

SmallVector<Value> AsyncCopyMainloop::loadPositions(Value chunk) {
  Value first = b.at(positions, b.mul(chunk, tile.slabs), i32);
  if (copied.passRows <= shape.inBlock)
    return b.loadIntegers(first, tile.slabs);
  // A pass is of several slabs.
  SmallVector<Value> result;
  Value slab =
      b.min(b.div(copied.row, shape.inBlock), b.constant(tile.slabs - 1));
  for (int64_t pass = 0; pass * copied.passRows < tile.slabs * shape.inBlock;
       ++pass)
    result.push_back(b.load(
        b.at(first, b.add(slab, pass * copied.passRows / shape.inBlock), i32),
        i32));
  return result;
}

AsyncCopyMainloop::Sources AsyncCopyMainloop::loadSources(Value chunk) {
  chunk = clampChunk(chunk);
  Sources sources;
  sources.positions = loadPositions(chunk);
  int64_t blocksPerPass = std::max<int64_t>(1, blockThreads / piecesPerBlock);
  Value number = b.div(b.thread, std::min(piecesPerBlock, blockThreads));
  Value block = b.add(b.mul(chunk, tile.blocks), number);
  block = b.multiplyAdd(block, plan.getPackedBlocks(), piece.member);
  for (int64_t first = 0; first < tile.blocks; first += blocksPerPass) {
    auto load = [&]() -> SmallVector<Value> {
      return {b.load(
          b.at(b.at(slots, block, i32), first * plan.getPackedBlocks(), i32),
          i32)};
    };
    // Of the last pass, some threads copy nothing.
    sources.slots.push_back(
        first + blocksPerPass <= tile.blocks
            ? load()[0]
            : b.when(b.less(number, b.constant(tile.blocks - first)),
                     b.constant(-1), load)[0]);
  }
  return sources;
}

void AsyncCopyMainloop::copySlabs(Value stage, ArrayRef<Value> positions) {
  int64_t tokens = shape.activations.tokens;
  bool isOneSlab = copied.passRows <= shape.inBlock;
  Value to = b.add(stage, b.multiplyAdd(copied.row, layout.slabPitch,
                                        b.mul(copied.piece, copiedBytes)));
  to = b.at(to);
  auto find = [&](int64_t first) {
    Value position =
        positions[first / (isOneSlab ? shape.inBlock : copied.passRows)];
    Value from = b.atFar(x, position, shape.inBlock * tokens, type);
    if (isOneSlab)
      from = b.at(from, first % shape.inBlock * tokens, type);
    return from;
  };
  copied.copyRows(b, tile.slabs * shape.inBlock, to, layout.slabPitch, find,
                  tokenBytes);
}

void AsyncCopyMainloop::copyBlock(Value to, Value slot) {
  int64_t bytes = shape.getPieceElements() * shape.elementBytes;
  int64_t passes = std::max<int64_t>(1, piecesPerBlock / blockThreads);
  // A pass is of whole columns where rows are padded.
  int64_t step =
      (shape.isPadded() ? blockThreads / shape.getRows() : blockThreads) *
      elements;
  auto copyFrom = [&](Value slot, Value size) {
    Value block =
        b.atFar(values, slot, shape.blockRows * shape.blockCols, type);
    for (int64_t pass = 0; pass != passes; ++pass) {
      Value from = b.at(block, pass * step, type);
      Value shared =
          b.at(to, pass * step * shape.elementBytes, b.b.getI8Type());
      if (bytes >= 4)
        b.copyAsync(shared, from, size, bytes);
      else
        b.storeShared(b.load(from, type), shared, bytes);
    }
  };
  Value isStored = b.less(b.constant(-1), slot);
  if (plan.getPackedBlocks() == 1 && plan.alignment == 1)
    return b.when(isStored, [&] { copyFrom(slot, Value()); });
  // Where a block or a packed one is missing there are zeros.
  copyFrom(b.select(isStored, slot, b.constant(0)),
           b.select(isStored, b.constant(bytes), b.constant(0)));
}

void AsyncCopyMainloop::copyBlocks(Value stage, ArrayRef<Value> slots) {
  int64_t blocksPerPass = std::max<int64_t>(1, blockThreads / piecesPerBlock);
  Value to =
      b.multiplyAdd(b.div(b.thread, piecesPerBlock), layout.block, piece.to);
  to = b.at(b.add(b.add(stage, to), layout.blocks));
  int64_t first = 0;
  for (Value slot : slots) {
    copyBlock(b.at(to, first, b.b.getI8Type()), slot);
    first += blocksPerPass * layout.block;
  }
}

void AsyncCopyMainloop::run(const Multiplier &multiplier, Begin begin,
                            Finish finish) {
  clearZeros();
  size_t numPositions = 0;
  auto load = [&](Value chunk) {
    Sources sources = loadSources(chunk);
    numPositions = sources.positions.size();
    llvm::append_range(sources.positions, sources.slots);
    return sources.positions;
  };
  auto copy = [&](Value, Value stage, ValueRange sources) {
    copySlabs(stage, SmallVector<Value>(sources.take_front(numPositions)));
    copyBlocks(stage, SmallVector<Value>(sources.drop_front(numPositions)));
  };
  SmallVector<Value> sums =
      CopyPipeline(b, tile.stages, layout.size)
          .run(
              {product.range.first, product.range.end}, copy, begin,
              [&](Value, Value stage, ValueRange words, ValueRange sums) {
                return addBlocks(stage, words, multiplier, sums);
              },
              load, [&](Value chunk) { return loadWords(chunk); });
  finish(sums);
}

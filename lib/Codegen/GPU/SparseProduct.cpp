// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix on tensor cores.
//
// A block of threads owns lines of output features, and tokens: how many, the
// model says (ProductTile). It goes through the chunks of its plan: a stage of
// shared memory holds the activations of a chunk's positions and its blocks,
// while copies for the next stages are under way. A warp owns lines and tokens,
// keeps their sums in 128 registers a thread, and finds its blocks in the chunk
// by a word. Rows of shared memory are 16 bytes longer than what they hold: 8
// rows of a matrix lie in different banks, and all offsets but one are
// constants.

#include "SparseProduct.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;

std::optional<SparseProduct> SparseProduct::match(Operation *root,
                                                  GPUAttr chip) {
  SparseProduct product;
  product.op = dyn_cast<SpMMOp>(root);
  if (!product.op)
    return std::nullopt;
  SpMMOp op = product.op;
  Type type = op.getX().getType().getElementType();
  auto activations = Activations::match(op.getX(), op.getFeatureDim());
  PatternType pattern = op.getPattern().getType();
  product.view = *getLineView(op);
  View across = getOther(product.view);
  Type yType = op.getY().getType().getElementType();
  if (!activations || !isMultiplied(type) ||
      op.getValues().getType().getElementType() != type ||
      !isStored(yType, type) || !isLoaded(op.getValues()) ||
      !isCovered(pattern.getBlockRows()) ||
      !isCovered(pattern.getBlockCols()) ||
      op.getY().getType().getNumElements() > INT32_MAX)
    return std::nullopt;
  product.shape = {pattern.getBlockExtent(product.view),
                   pattern.getBlockExtent(across),
                   pattern.getBlockRows(),
                   pattern.getBlockCols(),
                   pattern.getNumLines(product.view),
                   pattern.getNumLines(across),
                   pattern.getSlots(),
                   *activations,
                   yType.getIntOrFloatBitWidth() / 8};
  auto tile = ProductTile::choose(product.shape, *findChip(chip.getChip()),
                                  chip.getTileOutputs(), chip.getTileTokens());
  if (!tile)
    return std::nullopt;
  product.tile = *tile;
  product.plan = {product.shape.numLines,
                  product.shape.length,
                  product.shape.slots,
                  tile->lines,
                  tile->slabs,
                  tile->blocks};
  return product;
}

std::optional<ResultSpace> SparseProduct::getSpace() {
  int64_t rank = op.getY().getType().getRank();
  SmallVector<int64_t, 2> batches = llvm::to_vector<2>(llvm::seq(rank - 2));
  return ResultSpace{
      {batches, {rank - 2}, {rank - 1}}, /*row=*/1, tile.warpTokens};
}

SmallVector<MemRefType> SparseProduct::getScratch() {
  SmallVector<MemRefType> types = plan.getTypes(op->getContext());
  if (epilogue)
    llvm::append_range(types, epilogue->getScratch());
  return types;
}

namespace mlir::bsr {
/// What a thread does.
class SparseProductEmitter {
public:
  /// `y` is the buffer of the result, `[batches, features, tokens]`, if there
  /// is no epilogue.
  SparseProductEmitter(SparseProduct &product, KernelBody &kernel,
                       ValueRange scratch, const StoredRows &y,
                       BlockBuilder &b);
  void emit();

private:
  /// What a thread copies of a chunk: where it lies along the line, or which
  /// slot it is.
  struct Sources {
    SmallVector<Value> positions, slots;
  };

  /// The row and the first column of the piece of a block that the thread
  /// copies: two neighbours are a sector of 32 bytes of global memory, 8 lie in
  /// different banks of shared memory.
  std::pair<Value, Value> getPiece();
  /// The sources of `chunk`, or of the last one that there is memory for.
  Sources loadSources(Value chunk);
  /// The words of the warp's lines.
  SmallVector<Value> loadWords(Value chunk);
  Value clampChunk(Value chunk) {
    return b.min(chunk, b.constant(product.plan.getMaxChunks() - 1));
  }
  void copySlabs(Value stage, ArrayRef<Value> positions);
  void copyBlocks(Value stage, ArrayRef<Value> slots);
  /// Begins to copy `chunk`, if the group has it.
  void copy(Value chunk, Value stage, const Sources &sources);

  SmallVector<Value> getInitialSums();
  /// Adds the blocks of one line, `word`, to `sums`.
  SmallVector<Value> multiplyLine(Value stage, Value word, ValueRange sums);
  SmallVector<Value> multiplyBlock(Value slab, Value block, ValueRange sums);
  void store(ValueRange sums);
  void emitEpilogue(ValueRange sums);

  /// The number of a sum: of a line of the warp, of 16 outputs, of 8 tokens.
  int64_t getSum(int64_t line, int64_t outputs, int64_t tokens) const {
    return ((line * rowTiles + outputs) * tokenTiles + tokens) * 4;
  }
  Value getLine(int64_t line) {
    Value first = b.multiplyAdd(warpLine, tile.warpLines, b.constant(line));
    return b.multiplyAdd(b.block[0], tile.lines, first);
  }
  /// Calls `body` where `line` is one of the matrix.
  void whenInside(Value line, llvm::function_ref<void()> body) {
    if (product.plan.numLines % tile.lines == 0)
      return body();
    b.when(b.less(line, b.constant(product.plan.numLines)), body);
  }

  SparseProduct &product;
  const ProductTile &tile;
  KernelBody &kernel;
  BlockBuilder &b;
  const StoredRows &y;
  StageLayout layout;
  Type type, i32;
  int64_t rowTiles, tokenTiles;
  /// A block has its inputs as rows: its matrices are transposed when loaded.
  bool isTransposed;

  Value batch;
  /// The first token of the block of threads.
  Value tokenTile;
  Value warpLine, warpToken;
  /// Null if each piece that a thread copies is inside: the number of bytes.
  Value tokenBytes;
  Value x, values;
  /// The plan of the group.
  Value numChunks, positions, words, slots;
  /// Where the thread's rows of matrices begin in a slab and in a block.
  Value slabRow, matrixRow;
};
} // namespace mlir::bsr

SparseProductEmitter::SparseProductEmitter(SparseProduct &product,
                                           KernelBody &kernel,
                                           ValueRange scratch,
                                           const StoredRows &y, BlockBuilder &b)
    : product(product), tile(product.tile), kernel(kernel), b(b), y(y),
      layout(tile, product.shape), i32(b.b.getI32Type()),
      rowTiles(product.shape.outBlock / fragmentRows),
      tokenTiles(tile.warpTokens / fragmentCols),
      isTransposed(!product.op.getTranspose()) {
  SpMMOp op = product.op;
  type = op.getX().getType().getElementType();
  int64_t tilesPerBatch =
      llvm::divideCeil(product.shape.activations.tokens, tile.tokens);
  batch = b.constant(0);
  Value tileNumber = b.block[1];
  if (product.shape.activations.batches != 1) {
    batch = b.div(tileNumber, tilesPerBatch);
    tileNumber = b.rem(tileNumber, tilesPerBatch);
  }
  tokenTile = b.mul(tileNumber, tile.tokens);
  int64_t warpsAlong = tile.tokens / tile.warpTokens;
  warpToken = b.rem(b.warp, warpsAlong);
  warpLine = b.div(b.warp, warpsAlong);

  // What a thread copies: one piece of a row of activations, of several rows.
  int64_t piecesPerRow = tile.tokens / copiedElements;
  Value token =
      b.multiplyAdd(b.rem(b.thread, piecesPerRow), copiedElements, tokenTile);
  if (product.shape.activations.tokens % tile.tokens) {
    Value isInside =
        b.less(token, b.constant(product.shape.activations.tokens));
    tokenBytes = b.select(isInside, b.constant(16), b.constant(0));
    token = b.select(isInside, token, b.constant(0));
  }
  Value row = b.rem(b.div(b.thread, piecesPerRow), product.shape.inBlock);
  ArrayRef<int64_t> xShape = op.getX().getType().getShape().take_back(2);
  x = b.atFar(b.getPointer(kernel.inputs.lookup(op.getX())), batch,
              xShape[0] * xShape[1], type);
  x = b.at(x, b.multiplyAdd(row, product.shape.activations.tokens, token),
           type);
  auto [blockRow, blockColumn] = getPiece();
  Value blockElement =
      b.multiplyAdd(blockRow, product.shape.blockCols, blockColumn);
  values = b.at(b.getPointer(kernel.inputs.lookup(op.getValues())),
                blockElement, type);
  int64_t chunks = product.plan.getMaxChunks();
  numChunks = b.load(b.at(b.getPointer(scratch[0]), b.block[0], i32), i32);
  auto ofGroup = [&](Value array, int64_t each) {
    return b.atFar(b.getPointer(array), b.block[0], chunks * each, i32);
  };
  positions = ofGroup(scratch[1], tile.slabs);
  words = ofGroup(scratch[2], tile.lines);
  slots = ofGroup(scratch[3], tile.blocks);

  // A slab has inputs as rows: both operands are transposed when loaded, or
  // none.
  slabRow = b.add(getMatrixRow(b, layout.slabPitch, /*rowsLast=*/false),
                  b.mul(warpToken, tile.warpTokens * elementBytes));
  matrixRow = getMatrixRow(b, layout.blockPitch, /*rowsLast=*/isTransposed);
}

std::pair<Value, Value> SparseProductEmitter::getPiece() {
  int64_t rows = product.shape.blockRows;
  Value number =
      b.rem(b.thread, rows * product.shape.blockCols / copiedElements);
  Value upper = b.div(number, 16);
  Value row =
      b.multiplyAdd(b.rem(b.div(number, 2), 4), 2, b.rem(b.div(number, 8), 2));
  row = b.multiplyAdd(b.rem(upper, rows / 8), 8, row);
  Value column = b.multiplyAdd(b.div(upper, rows / 8), 2, b.rem(number, 2));
  return {row, b.mul(column, copiedElements)};
}

SparseProductEmitter::Sources SparseProductEmitter::loadSources(Value chunk) {
  chunk = clampChunk(chunk);
  Sources sources;
  int64_t rowsPerPass = blockThreads * copiedElements / tile.tokens;
  Value first = b.at(positions, b.mul(chunk, tile.slabs), i32);
  if (rowsPerPass <= product.shape.inBlock) {
    sources.positions = b.loadIntegers(first, tile.slabs);
  } else {
    // A pass is of several slabs.
    Value row = b.div(b.thread, tile.tokens / copiedElements);
    Value slab =
        b.min(b.div(row, product.shape.inBlock), b.constant(tile.slabs - 1));
    for (int64_t pass = 0;
         pass * rowsPerPass < tile.slabs * product.shape.inBlock; ++pass)
      sources.positions.push_back(b.load(
          b.at(first, b.add(slab, pass * rowsPerPass / product.shape.inBlock),
               i32),
          i32));
  }
  int64_t piecesPerBlock =
      product.shape.outBlock * product.shape.inBlock / copiedElements;
  int64_t blocksPerPass = std::max<int64_t>(1, blockThreads / piecesPerBlock);
  Value block = b.add(b.mul(chunk, tile.blocks),
                      b.div(b.thread, std::min(piecesPerBlock, blockThreads)));
  for (int64_t pass = 0; pass != tile.blocks / blocksPerPass; ++pass)
    sources.slots.push_back(
        b.load(b.at(b.at(slots, block, i32), pass * blocksPerPass, i32), i32));
  return sources;
}

SmallVector<Value> SparseProductEmitter::loadWords(Value chunk) {
  Value first = b.multiplyAdd(clampChunk(chunk), tile.lines,
                              b.mul(warpLine, tile.warpLines));
  return b.loadIntegers(b.at(words, first, i32), tile.warpLines);
}

void SparseProductEmitter::copySlabs(Value stage, ArrayRef<Value> positions) {
  int64_t piecesPerRow = tile.tokens / copiedElements;
  int64_t rowsPerPass = blockThreads / piecesPerRow;
  int64_t height = tile.slabs * product.shape.inBlock;
  int64_t tokens = product.shape.activations.tokens;
  bool isOneSlab = rowsPerPass <= product.shape.inBlock;
  Value row = b.div(b.thread, piecesPerRow);
  Value to = b.add(stage, b.multiplyAdd(row, layout.slabPitch,
                                        b.mul(b.rem(b.thread, piecesPerRow),
                                              copiedElements * elementBytes)));
  to = b.at(to);
  auto copyRows = [&] {
    for (int64_t pass = 0; pass * rowsPerPass < height; ++pass) {
      int64_t first = pass * rowsPerPass;
      Value position =
          positions[isOneSlab ? first / product.shape.inBlock : pass];
      Value from = b.atFar(x, position, product.shape.inBlock * tokens, type);
      if (isOneSlab)
        from = b.at(from, first % product.shape.inBlock * tokens, type);
      b.copyAsync(b.at(to, first * layout.slabPitch, b.b.getI8Type()), from,
                  tokenBytes);
    }
  };
  // Of small stages, some threads copy nothing.
  if (height >= rowsPerPass)
    copyRows();
  else
    b.when(b.less(row, b.constant(height)), copyRows);
}

void SparseProductEmitter::copyBlocks(Value stage, ArrayRef<Value> slots) {
  int64_t rows = product.shape.blockRows;
  int64_t size = rows * product.shape.blockCols;
  int64_t piecesPerBlock = size / copiedElements;
  int64_t passes = std::max<int64_t>(1, piecesPerBlock / blockThreads);
  int64_t blocksPerPass = std::max<int64_t>(1, blockThreads / piecesPerBlock);
  auto [row, column] = getPiece();
  Value to = b.multiplyAdd(row, layout.blockPitch, b.mul(column, elementBytes));
  to = b.multiplyAdd(b.div(b.thread, piecesPerBlock), layout.block, to);
  to = b.at(b.add(b.add(stage, to), layout.blocks));
  int64_t first = 0;
  for (Value slot : slots) {
    b.when(b.less(b.constant(-1), slot), [&] {
      Value from = b.atFar(values, slot, size, type);
      for (int64_t pass = 0; pass != passes; ++pass) {
        int64_t column = pass * blockThreads / rows * copiedElements;
        b.copyAsync(b.at(to, first + column * elementBytes, b.b.getI8Type()),
                    b.at(from, column, type), Value());
      }
    });
    first += blocksPerPass * layout.block;
  }
}

void SparseProductEmitter::copy(Value chunk, Value stage,
                                const Sources &sources) {
  b.when(b.less(chunk, numChunks), [&] {
    copySlabs(stage, sources.positions);
    copyBlocks(stage, sources.slots);
  });
  b.commitCopies();
}

SmallVector<Value> SparseProductEmitter::getInitialSums() {
  Type f32 = b.b.getF32Type();
  Value zero = arith::ConstantOp::create(b.b, b.loc, b.b.getZeroAttr(f32));
  SmallVector<Value> sums(getSum(tile.warpLines, 0, 0), zero);
  Value bias = product.op.getBias();
  if (!bias)
    return sums;
  Type biasType = cast<ShapedType>(bias.getType()).getElementType();
  Value pointer = b.getPointer(kernel.inputs.lookup(bias));
  for (int64_t line = 0; line != tile.warpLines; ++line) {
    // Lines beyond the matrix have no bias: that of the last one.
    Value number = b.min(getLine(line), b.constant(product.plan.numLines - 1));
    Value first =
        b.multiplyAdd(number, product.shape.outBlock, b.div(b.lane, 4));
    for (int64_t outputs = 0; outputs != rowTiles; ++outputs)
      for (int64_t half = 0; half != 2; ++half) {
        Value at = b.at(b.at(pointer, first, biasType),
                        outputs * fragmentRows + half * 8, biasType);
        Value start = b.load(at, biasType);
        if (biasType != f32)
          start = arith::ExtFOp::create(b.b, b.loc, f32, start);
        for (int64_t tokens = 0; tokens != tokenTiles; ++tokens)
          for (int64_t i = 0; i != 2; ++i)
            sums[getSum(line, outputs, tokens) + 2 * half + i] = start;
      }
  }
  return sums;
}

SmallVector<Value> SparseProductEmitter::multiplyBlock(Value slab, Value block,
                                                       ValueRange sums) {
  SmallVector<Value> next(sums);
  Type i8 = b.b.getI8Type();
  for (int64_t input = 0; input != product.shape.inBlock;
       input += fragmentRows) {
    SmallVector<SmallVector<Value, 4>> activations;
    for (int64_t token = 0; token != tile.warpTokens; token += fragmentRows)
      activations.push_back(b.loadMatrices(
          b.at(slab, input * layout.slabPitch + token * elementBytes, i8),
          /*transpose=*/true));
    for (int64_t outputs = 0; outputs != rowTiles; ++outputs) {
      int64_t row = isTransposed ? input : outputs * fragmentRows;
      int64_t column = isTransposed ? outputs * fragmentRows : input;
      SmallVector<Value, 4> matrix = b.loadMatrices(
          b.at(block, row * layout.blockPitch + column * elementBytes, i8),
          isTransposed);
      for (int64_t tokens = 0; tokens != tokenTiles; ++tokens) {
        MutableArrayRef<Value> sum =
            MutableArrayRef(next).slice(getSum(0, outputs, tokens), 4);
        ArrayRef<Value> right =
            ArrayRef(activations[tokens / 2]).slice(tokens % 2 * 2, 2);
        llvm::copy(b.multiply(type, matrix, right, sum), sum.begin());
      }
    }
  }
  return next;
}

SmallVector<Value> SparseProductEmitter::multiplyLine(Value stage, Value word,
                                                      ValueRange sums) {
  Value slabs = LinePlan::getSlabs(b, word);
  Value first = LinePlan::getFirstBlock(b, word);
  Value block =
      b.add(b.add(b.multiplyAdd(first, layout.block, stage), matrixRow),
            layout.blocks);
  Value firstSlab = b.add(stage, slabRow);
  SmallVector<Value> carried(sums);
  carried.append({slabs, block});
  SmallVector<Value> next = b.loop(
      b.constant(0), b.countOnes(slabs), 1, carried,
      [&](Value, ValueRange carried) {
        Value left = carried[sums.size()], block = carried[sums.size() + 1];
        Value slab =
            b.multiplyAdd(b.countTrailingZeros(left), layout.slab, firstSlab);
        SmallVector<Value> next = multiplyBlock(
            b.at(slab), b.at(block), carried.take_front(sums.size()));
        next.push_back(b.bitAnd(left, b.add(left, -1)));
        next.push_back(b.add(block, layout.block));
        return next;
      });
  next.truncate(sums.size());
  return next;
}

void SparseProductEmitter::store(ValueRange sums) {
  Value first = b.multiplyAdd(warpToken, tile.warpTokens, tokenTile);
  for (int64_t line = 0; line != tile.warpLines; ++line) {
    Value number = getLine(line);
    whenInside(number, [&] {
      Value feature =
          b.multiplyAdd(number, product.shape.outBlock, b.div(b.lane, 4));
      for (int64_t outputs = 0; outputs != rowTiles; ++outputs)
        for (int64_t half = 0; half != 2; ++half) {
          Value row = b.add(feature, outputs * fragmentRows + half * 8);
          for (int64_t tokens = 0; tokens != tokenTiles; tokens += 2)
            storeSums(
                b, sums.slice(getSum(line, outputs, tokens) + 2 * half, 2),
                sums.slice(getSum(line, outputs, tokens + 1) + 2 * half, 2), y,
                {batch, row}, b.add(first, tokens * fragmentCols),
                /*isRagged=*/bool(tokenBytes));
        }
    });
  }
}

void SparseProductEmitter::emitEpilogue(ValueRange sums) {
  WarpSums warp;
  for (int64_t line = 0; line != tile.warpLines; ++line)
    for (int64_t outputs = 0; outputs != rowTiles; ++outputs)
      for (int64_t half = 0; half != 2; ++half)
        for (int64_t tokens = 0; tokens != tokenTiles; ++tokens)
          llvm::append_range(
              warp.sums,
              sums.slice(getSum(line, outputs, tokens) + 2 * half, 2));
  // Lines of a warp follow each other.
  warp.numRows = tile.warpLines * rowTiles * 2;
  warp.at = {batch, b.multiplyAdd(getLine(0), product.shape.outBlock,
                                  b.div(b.lane, 4))};
  warp.column = b.multiplyAdd(warpToken, tile.warpTokens, tokenTile);
  warp.warpNumber = b.div(warp.column, tile.warpTokens);
  warp.areRowsRagged = product.plan.numLines % tile.lines;
  warp.areColumnsRagged = bool(tokenBytes);
  product.epilogue->emit(b, warp);
}

void SparseProductEmitter::emit() {
  // In front of the first iteration, copies of all stages but one are under
  // way; what the next one copies is known an iteration before.
  int64_t ahead = tile.stages - 1;
  for (int64_t chunk = 0; chunk != ahead; ++chunk)
    copy(b.constant(chunk), b.constant(chunk * layout.size),
         loadSources(b.constant(chunk)));
  Sources sources = loadSources(b.constant(ahead));
  int64_t numPositions = sources.positions.size();

  SmallVector<Value> carried = getInitialSums();
  int64_t numSums = carried.size(), numSumsOfLine = getSum(1, 0, 0);
  carried.append({b.constant(0), b.constant(ahead * layout.size)});
  llvm::append_range(carried, loadWords(b.constant(0)));
  llvm::append_range(carried, sources.positions);
  llvm::append_range(carried, sources.slots);
  SmallVector<Value> last = b.loop(
      b.constant(0), numChunks, 1, carried,
      [&](Value chunk, ValueRange carried) {
        ValueRange sums = carried.take_front(numSums);
        carried = carried.drop_front(numSums);
        Value stage = carried[0], copied = carried[1];
        ValueRange words = carried.slice(2, tile.warpLines);
        carried = carried.drop_front(2 + tile.warpLines);
        Sources sources{SmallVector<Value>(carried.take_front(numPositions)),
                        SmallVector<Value>(carried.drop_front(numPositions))};
        b.waitForCopies(ahead - 1);
        b.barrier();
        Value next = b.add(chunk, ahead);
        copy(next, copied, sources);
        Sources later = loadSources(b.add(next, 1));
        SmallVector<Value> laterWords = loadWords(b.add(chunk, 1));
        SmallVector<Value> result;
        for (int64_t line = 0; line != tile.warpLines; ++line)
          llvm::append_range(
              result,
              multiplyLine(stage, words[line],
                           sums.slice(line * numSumsOfLine, numSumsOfLine)));
        result.append({getNextStage(b, stage, layout.size, tile.stages),
                       getNextStage(b, copied, layout.size, tile.stages)});
        llvm::append_range(result, laterWords);
        llvm::append_range(result, later.positions);
        llvm::append_range(result, later.slots);
        return result;
      });
  ValueRange sums = ValueRange(last).take_front(numSums);
  if (product.epilogue)
    emitEpilogue(sums);
  else
    store(sums);
}

LogicalResult SparseProduct::emit(OpBuilder &b, KernelBody &kernel,
                                  ValueRange scratch) {
  size_t numArrays = plan.getTypes(op->getContext()).size();
  plan.emit(b, kernel.loc, kernel.patterns.at({op.getPattern(), view}),
            scratch.take_front(numArrays));
  StageLayout layout(tile, shape);
  const Activations &x = shape.activations;
  StoredRows y;
  if (epilogue)
    epilogue->begin(b, kernel, scratch.drop_front(numArrays));
  else
    y = createRows(b, kernel.loc, kernel.outputs.lookup(op.getY()),
                   {x.batches, shape.numLines * shape.outBlock}, x.tokens);
  int64_t tiles = x.batches * llvm::divideCeil(x.tokens, tile.tokens);
  BlockBuilder::launch(
      b, kernel.loc, {plan.getNumGroups(), tiles}, blockThreads,
      tile.stages * layout.size, [&](BlockBuilder &block) {
        SparseProductEmitter(*this, kernel, scratch, y, block).emit();
      });
  return epilogue ? epilogue->end(b) : success();
}

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
#include "ChunkWalk.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;

std::optional<SparseOperands> SparseOperands::match(Operation *root) {
  auto op = dyn_cast<SpMMOp>(root);
  if (!op)
    return std::nullopt;
  Type type = op.getX().getType().getElementType();
  auto activations = Activations::match(op.getX(), op.getFeatureDim());
  PatternType pattern = op.getPattern().getType();
  Type yType = op.getY().getType().getElementType();
  if (!activations || !isMultiplied(type) ||
      op.getValues().getType().getElementType() != type ||
      !isStored(yType, type) || !isLoaded(op.getValues()) ||
      !isCovered(pattern.getBlockRows()) ||
      !isCovered(pattern.getBlockCols()) ||
      op.getY().getType().getNumElements() > INT32_MAX)
    return std::nullopt;
  auto shape = ProductShape::get(op, *activations, /*isOnTensorCores=*/true);
  if (!shape)
    return std::nullopt;
  return SparseOperands{op, *shape};
}

std::optional<SparseProduct> SparseProduct::match(Operation *root,
                                                  GPUAttr chip) {
  auto operands = SparseOperands::match(root);
  if (!operands)
    return std::nullopt;
  SparseProduct product;
  product.op = operands->op;
  product.shape = operands->shape;
  if (!product.chooseTile(product.tile, chip))
    return std::nullopt;
  return product;
}

std::optional<ResultSpace> SparseProduct::getSpace() {
  return getRows(tile.warpTokens);
}

namespace mlir::bsr {
/// What a thread does.
class SparseProductEmitter {
public:
  /// `scratch` is that of the product; without an epilogue, `y` is its result.
  SparseProductEmitter(SparseProduct &product, KernelBody &kernel,
                       ValueRange scratch, const StoredRows &y,
                       const ChunkRange &range, BlockBuilder &b);
  void emit();

private:
  SmallVector<Value> getInitialSums();
  /// Adds the blocks of one line, `word`, to `sums`: blocks of 8 inputs, two at
  /// a time, which lie side by side.
  SmallVector<Value> multiplyGathered(Value stage, Value word, ValueRange sums);
  SmallVector<Value> multiplyBlock(Value slab, Value block, ValueRange sums);
  void store(ValueRange sums);
  void emitEpilogue(ValueRange sums);
  void clearZeros();

  /// The number of a sum: of a line of the warp, of 16 outputs, of 8 tokens.
  int64_t getSum(int64_t line, int64_t outputs, int64_t tokens) const {
    return ((line * rowTiles + outputs) * tokenTiles + tokens) * 4;
  }

  SparseProduct &product;
  const ProductShape &shape;
  const ProductTile &tile;
  KernelBody &kernel;
  BlockBuilder &b;
  const StoredRows &y;
  ChunkWalk walk;
  const StageLayout &layout;
  ValueRange scratch;
  Type type;
  int64_t rowTiles, tokenTiles;
  /// Where the lane's rows of matrices begin in a slab and in a block.
  Value slabRow, matrixRow;
  /// Which of two gathered blocks the lane's rows of activations belong to.
  Value half;
};
} // namespace mlir::bsr

SparseProductEmitter::SparseProductEmitter(
    SparseProduct &product, KernelBody &kernel, ValueRange scratch,
    const StoredRows &y, const ChunkRange &range, BlockBuilder &b)
    : product(product), shape(product.shape), tile(product.tile),
      kernel(kernel), b(b), y(y),
      walk(product.op, shape, tile, product.plan, kernel, scratch, range, b),
      layout(walk.layout), scratch(scratch),
      type(product.op.getX().getType().getElementType()),
      rowTiles(shape.outBlock / fragmentRows),
      tokenTiles(tile.warpTokens / fragmentCols) {
  Value tokens = b.mul(walk.warpToken, elementBytes);
  bool inputsAreRows = shape.inputsAreRows;
  if (shape.getGathered() == 1) {
    // A slab has inputs as rows: both operands are transposed when loaded, or
    // none.
    slabRow =
        b.add(getMatrixRow(b, layout.slabPitch, /*rowsLast=*/false), tokens);
    matrixRow = getMatrixRow(b, layout.blockPitch, /*rowsLast=*/inputsAreRows);
    return;
  }
  // Of the four matrices, the inputs of two are those of one slab and block.
  Value row = b.rem(b.lane, 8), last = b.div(b.lane, 16);
  half = b.rem(b.div(b.lane, 8), 2);
  slabRow = b.multiplyAdd(row, layout.slabPitch,
                          b.multiplyAdd(last, copiedBytes, tokens));
  int64_t outputs = inputsAreRows ? copiedBytes : 8 * layout.blockPitch;
  matrixRow = b.multiplyAdd(row, layout.blockPitch, b.mul(half, outputs));
  matrixRow = b.multiplyAdd(last, layout.block, matrixRow);
}

SmallVector<Value> SparseProductEmitter::getInitialSums() {
  SmallVector<Value> sums(getSum(tile.warpLines, 0, 0));
  for (int64_t line = 0; line != tile.warpLines; ++line) {
    Value first =
        b.multiplyAdd(walk.getLine(line), shape.outBlock, b.div(b.lane, 4));
    for (int64_t outputs = 0; outputs != rowTiles; ++outputs)
      for (int64_t half = 0; half != 2; ++half) {
        Value output = b.add(first, outputs * fragmentRows + half * 8);
        Value start = product.loadStart(b, kernel, walk.range, output);
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
  bool inputsAreRows = shape.inputsAreRows;
  for (int64_t input = 0; input < shape.inBlock; input += fragmentRows) {
    SmallVector<SmallVector<Value, 4>> activations;
    for (int64_t token = 0; token != tile.warpTokens; token += fragmentRows)
      activations.push_back(b.loadMatrices(
          b.at(slab, input * layout.slabPitch + token * elementBytes, i8),
          /*transpose=*/true));
    for (int64_t outputs = 0; outputs != rowTiles; ++outputs) {
      int64_t row = inputsAreRows ? input : outputs * fragmentRows;
      int64_t column = inputsAreRows ? outputs * fragmentRows : input;
      SmallVector<Value, 4> matrix = b.loadMatrices(
          b.at(block, row * layout.blockPitch + column * elementBytes, i8),
          /*transpose=*/inputsAreRows);
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

SmallVector<Value> SparseProductEmitter::multiplyGathered(Value stage,
                                                          Value word,
                                                          ValueRange sums) {
  Value slabs = LinePlan::getSlabs(b, word);
  Value first = LinePlan::getFirstBlock(b, word);
  Value block =
      b.add(b.add(b.multiplyAdd(first, layout.block, stage), matrixRow),
            layout.blocks);
  Value firstSlab = b.add(stage, slabRow);
  // Any lane of a matrix of zeros may have the address of all of them.
  Value zeros = b.add(b.sub(slabRow, b.mul(b.rem(b.lane, 8), layout.slabPitch)),
                      layout.getZeros(tile));
  auto dropFirst = [&](Value left) { return b.bitAnd(left, b.add(left, -1)); };
  Value isFirst = b.equal(half, b.constant(0));
  Value mine = b.select(isFirst, slabs, dropFirst(slabs));
  SmallVector<Value> carried(sums);
  carried.append({mine, block});
  Value steps = b.div(b.add(b.countOnes(slabs), 1), 2);
  SmallVector<Value> next =
      b.loop(b.constant(0), steps, 1, carried, [&](Value, ValueRange carried) {
        Value left = carried[sums.size()], block = carried[sums.size() + 1];
        Value slab =
            b.multiplyAdd(b.countTrailingZeros(left), layout.slab, firstSlab);
        slab = b.select(b.equal(left, b.constant(0)), zeros, slab);
        SmallVector<Value> next = multiplyBlock(
            b.at(slab), b.at(block), carried.take_front(sums.size()));
        next.push_back(dropFirst(dropFirst(left)));
        next.push_back(b.add(block, 2 * layout.block));
        return next;
      });
  next.truncate(sums.size());
  return next;
}

void SparseProductEmitter::store(ValueRange sums) {
  for (int64_t line = 0; line != tile.warpLines; ++line) {
    Value number = walk.getLine(line);
    walk.whenInside(number, [&] {
      Value feature = b.multiplyAdd(number, shape.outBlock, b.div(b.lane, 4));
      for (int64_t outputs = 0; outputs != rowTiles; ++outputs)
        for (int64_t half = 0; half != 2; ++half) {
          Value row = b.add(feature, outputs * fragmentRows + half * 8);
          for (int64_t tokens = 0; tokens != tokenTiles; tokens += 2)
            storeSums(
                b, sums.slice(getSum(line, outputs, tokens) + 2 * half, 2),
                sums.slice(getSum(line, outputs, tokens + 1) + 2 * half, 2), y,
                {walk.batch, row},
                b.add(walk.firstToken, tokens * fragmentCols), walk.isRagged);
        }
    });
  }
}

void SparseProductEmitter::clearZeros() {
  int64_t words = layout.slabPitch / 4;
  b.loop(b.thread, b.constant(words), blockThreads, {},
         [&](Value word, ValueRange) {
           Value at = b.add(b.mul(word, 4), layout.getZeros(tile));
           b.storeShared(b.constant(0), b.at(at));
           return SmallVector<Value>();
         });
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
  warp.at = {walk.batch,
             b.multiplyAdd(walk.getLine(0), shape.outBlock, b.div(b.lane, 4))};
  warp.column = walk.firstToken;
  warp.warpNumber = b.div(warp.column, tile.warpTokens);
  warp.areRowsRagged = shape.numLines % tile.lines;
  warp.areColumnsRagged = walk.isRagged;
  product.epilogue->emit(b, warp);
}

void SparseProductEmitter::emit() {
  if (half && !walk.range.numParts)
    clearZeros();
  SmallVector<Value> sums = getInitialSums();
  if (!walk.range.numParts)
    sums = walk.run(sums, [&](Value stage, Value word, ValueRange sums) {
      return half ? multiplyGathered(stage, word, sums)
                  : walk.addBlocks(
                        stage, word, slabRow, matrixRow, sums,
                        [&](Value slab, Value block, ValueRange sums) {
                          return multiplyBlock(slab, block, sums);
                        });
    });
  product.finish(b, walk.range, scratch, /*rank=*/b.constant(0), sums,
                 [&](ValueRange sums) {
                   if (product.epilogue)
                     emitEpilogue(sums);
                   else
                     store(sums);
                 });
}

LogicalResult SparseProduct::emit(OpBuilder &b, KernelBody &kernel,
                                  ValueRange scratch) {
  StoredRows y = begin(b, kernel, scratch);
  StageLayout layout(tile, shape);
  launch(b, kernel.loc, scratch, blockThreads,
         layout.getSharedBytes(tile, shape),
         [&](BlockBuilder &block, const ChunkRange &range) {
           SparseProductEmitter(*this, kernel, scratch, y, range, block).emit();
         });
  return epilogue ? epilogue->end(b) : success();
}

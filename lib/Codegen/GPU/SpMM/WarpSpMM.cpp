// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix on tensor cores.
//
// A block of threads owns lines of output features, and tokens: how many, the
// model says (SpMMTile). It goes through the chunks of its plan: a stage of
// shared memory holds the activations of a chunk's positions and its blocks,
// while copies for the next stages are under way, of all threads (PieceWalk) or
// of four warps (BoxWalk). A warp owns lines and tokens, keeps their sums in
// 128 registers a thread, and finds its blocks in the chunk by a word. What
// threads copy lies in rows that are 16 bytes longer than what they hold, what
// tensor copies bring is swizzled: 8 rows of a matrix lie in different banks.

#include "WarpSpMM.h"
#include "BoxWalk.h"
#include "PieceWalk.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::optional<WarpSpMM> WarpSpMM::match(const BlockProduct &operands,
                                        GPUAttr chip) {
  WarpSpMM product;
  if (!operands.fitsFragments(chip.getTf32()) ||
      !product.setShape(operands, /*isOnTensorCores=*/true) ||
      !product.chooseTile(product.tile, chip))
    return std::nullopt;
  return product;
}

std::optional<ResultSpace> WarpSpMM::getSpace() {
  return getRows(tile.warpTokens);
}

namespace mlir::bsr::gpu {
/// What a thread does.
class WarpSpMMEmitter {
public:
  WarpSpMMEmitter(WarpSpMM &product, const SpMMLaunch &launch, ChunkWalk &walk,
                  BlockBuilder &b);
  void emit();

private:
  SmallVector<Value> getInitialSums();
  /// Adds the blocks of one line, `word`, to `sums`: blocks of 8 inputs, two at
  /// a time, which lie side by side.
  SmallVector<Value> multiplyGathered(Value stage, Value word, ValueRange sums);
  /// What warps multiply of a slab from input `input` on, of 16 inputs: of 16
  /// tokens from the warp's token `token` on, or of all of its tokens.
  SmallVector<Value, 8> loadUnit(Value slab, int64_t input, int64_t token);
  SmallVector<Value> loadActivations(Value slab, int64_t input);
  /// Adds a block to the sums of one line: `operands` are its slab, or its
  /// activations, if lines share them.
  SmallVector<Value> multiplyBlock(ValueRange operands, Value block,
                                   ValueRange sums);
  void store(ValueRange sums);
  void emitEpilogue(ValueRange sums);
  void clearZeros();

  /// The sums of all lines of the warp, and where row `row` of the lane of one
  /// of them is stored.
  FragmentGrid getSums() const {
    return {tile.warpLines * ofLine.rows, ofLine.cols};
  }
  Value getOutput(int64_t line, int64_t row) {
    Value first =
        b.multiplyAdd(walk.getLine(line), shape.outBlock, b.div(b.lane, 4));
    return b.add(first, row * 8);
  }

  WarpSpMM &product;
  const SpMMShape &shape;
  const SpMMTile &tile;
  const SpMMLaunch &launch;
  BlockBuilder &b;
  ChunkWalk &walk;
  const StageLayout &layout;
  /// What multiplies the blocks of a line.
  WarpMultiplier ofLine;
  const Fragments &fragments;
  /// The lane's rows of matrices in a slab and in a block, and where the first
  /// begin.
  MatrixRows slabRows, blockRows;
  Value slabRow, matrixRow;
  /// Which of two gathered blocks the lane's rows of activations belong to.
  Value half;
};
} // namespace mlir::bsr::gpu

WarpSpMMEmitter::WarpSpMMEmitter(WarpSpMM &product, const SpMMLaunch &launch,
                                 ChunkWalk &walk, BlockBuilder &b)
    : product(product), shape(product.shape), tile(product.tile),
      launch(launch), b(b), walk(walk), layout(walk.layout),
      ofLine(b, product.op.getX().getType().getElementType(),
             shape.outBlock / fragmentRows, tile.warpTokens / fragmentCols),
      fragments(ofLine.fragments) {
  bool inputsAreRows = shape.inputsAreRows;
  // A slab has inputs as rows: both operands are transposed when loaded, or
  // none.
  if (tile.shareOutputs != 0) {
    int64_t partBytes = shape.inBlock * layout.slabPitch;
    slabRows = MatrixRows::getSwizzled(b, layout.slabPitch, partBytes,
                                       /*rowsLast=*/false);
    blockRows = MatrixRows::getSwizzled(b, layout.blockPitch, /*partBytes=*/0,
                                        /*rowsLast=*/inputsAreRows);
    Value part = b.div(walk.warpToken, StageLayout::boxTokens);
    slabRow = b.multiplyAdd(part, partBytes, slabRows.getFirst());
    matrixRow = blockRows.getFirst();
    return;
  }
  slabRows = MatrixRows::getPadded(b, fragments, layout.slabPitch,
                                   /*isInnerLast=*/false, /*isLeft=*/false);
  blockRows = MatrixRows::getPadded(b, fragments, layout.blockPitch,
                                    /*isInnerLast=*/!inputsAreRows,
                                    /*isLeft=*/true);
  Value tokens = b.mul(walk.warpToken, fragments.elementBytes);
  if (shape.getGathered() == 1) {
    slabRow = b.add(slabRows.getFirst(), tokens);
    matrixRow = blockRows.getFirst();
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

SmallVector<Value> WarpSpMMEmitter::getInitialSums() {
  SmallVector<Value> starts;
  for (int64_t line = 0; line != tile.warpLines; ++line)
    for (int64_t row = 0; row != ofLine.getNumRows(); ++row)
      starts.push_back(product.loadStart(b, launch.kernel, walk.range,
                                         getOutput(line, row)));
  return getSums().fillRows(starts);
}

SmallVector<Value, 8> WarpSpMMEmitter::loadUnit(Value slab, int64_t input,
                                                int64_t token) {
  return fragments.load(b, slabRows.at(b, slab, input, token), layout.slabPitch,
                        /*isInnerLast=*/false, /*isLeft=*/false);
}

SmallVector<Value> WarpSpMMEmitter::loadActivations(Value slab, int64_t input) {
  SmallVector<Value> result;
  for (int64_t token = 0; token != tile.warpTokens; token += fragmentRows)
    llvm::append_range(result, loadUnit(slab, input, token));
  return result;
}

SmallVector<Value> WarpSpMMEmitter::multiplyBlock(ValueRange operands,
                                                  Value block,
                                                  ValueRange sums) {
  bool inputsAreRows = shape.inputsAreRows;
  auto loadMatrix = [&](int64_t output, int64_t input) {
    Value at = inputsAreRows ? blockRows.at(b, block, input, output)
                             : blockRows.at(b, block, output, input);
    return fragments.load(b, at, layout.blockPitch,
                          /*isInnerLast=*/!inputsAreRows, /*isLeft=*/true);
  };
  auto loadTokens = [&](int64_t token, int64_t input) {
    if (operands.size() == 1)
      return loadUnit(operands.front(), input, token);
    size_t registers = operands.size() * fragmentRows / tile.warpTokens;
    return SmallVector<Value, 8>(
        operands.slice(token / fragmentRows * registers, registers));
  };
  using Kept = WarpMultiplier::Kept;
  return ofLine.multiply(
      shape.inBlock, loadMatrix, loadTokens,
      tile.keepsActivations(shape) ? Kept::Right : Kept::Left, sums);
}

SmallVector<Value> WarpSpMMEmitter::multiplyGathered(Value stage, Value word,
                                                     ValueRange sums) {
  Value slabs = LinePlan::getSlabs(b, word);
  Value first = LinePlan::getFirstBlock(b, word);
  Value block =
      b.add(b.add(b.multiplyAdd(first, layout.block, stage), matrixRow),
            layout.blocks);
  Value firstSlab = b.add(stage, slabRow);
  // Any lane of a matrix of zeros may have the address of all of them.
  Value zeros = b.add(b.sub(slabRow, b.mul(b.rem(b.lane, 8), layout.slabPitch)),
                      layout.zeros);
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
        SmallVector<Value> next =
            multiplyBlock(ValueRange{b.at(slab)}, b.at(block),
                          carried.take_front(sums.size()));
        next.push_back(dropFirst(dropFirst(left)));
        next.push_back(b.add(block, 2 * layout.block));
        return next;
      });
  next.truncate(sums.size());
  return next;
}

void WarpSpMMEmitter::store(ValueRange sums) {
  for (int64_t line = 0; line != tile.warpLines; ++line)
    walk.whenInside(walk.getLine(line), [&] {
      int64_t rows = ofLine.getNumRows();
      for (int64_t row = 0; row != rows; ++row)
        storeRow(b, getSums().getRow(sums, line * rows + row), launch.y,
                 {walk.batch, getOutput(line, row)}, walk.firstToken,
                 walk.isRagged);
    });
}

void WarpSpMMEmitter::clearZeros() {
  int64_t words = layout.slabPitch / 4;
  b.loop(b.thread, b.constant(words), blockThreads, {},
         [&](Value word, ValueRange) {
           Value at = b.add(b.mul(word, 4), layout.zeros);
           b.storeShared(b.constant(0), b.at(at));
           return SmallVector<Value>();
         });
}

void WarpSpMMEmitter::emitEpilogue(ValueRange sums) {
  WarpSums warp;
  warp.sums = getSums().getRows(sums);
  // Lines of a warp follow each other.
  warp.numRows = getSums().getNumRows();
  warp.at = {walk.batch, getOutput(/*line=*/0, /*row=*/0)};
  warp.column = walk.firstToken;
  warp.warpNumber = b.div(warp.column, tile.warpTokens);
  warp.areRowsRagged = shape.numLines % product.plan.lines;
  warp.areColumnsRagged = walk.isRagged;
  product.epilogue->emit(b, warp);
}

void WarpSpMMEmitter::emit() {
  auto finish = [&](ValueRange sums) {
    Value rank = b.rem(b.block[0], tile.getShares());
    product.finish(b, walk.range, launch.memory, rank, sums,
                   [&](ValueRange sums) {
                     if (product.epilogue)
                       emitEpilogue(sums);
                     else
                       store(sums);
                   });
  };
  if (walk.range.numParts)
    return finish(getInitialSums());
  if (half)
    clearZeros();
  auto addBlocks = [&](Value stage, ValueRange words, ValueRange sums) {
    return walk.addBlocks(
        stage, words, slabRow, matrixRow, sums,
        [&](Value slab) {
          return tile.areActivationsShared(shape)
                     ? loadActivations(slab, /*input=*/0)
                     : SmallVector<Value>{slab};
        },
        [&](ValueRange operands, Value block, ValueRange sums) {
          return multiplyBlock(operands, block, sums);
        });
  };
  auto addGathered = [&](Value stage, ValueRange words, ValueRange sums) {
    return ChunkWalk::multiplyLines(
        words, sums, [&](Value word, ValueRange sums) {
          return multiplyGathered(stage, word, sums);
        });
  };
  walk.run([&] { return getInitialSums(); },
           [&](Value stage, ValueRange words, ValueRange sums) {
             return half ? addGathered(stage, words, sums)
                         : addBlocks(stage, words, sums);
           },
           finish);
}

LogicalResult WarpSpMM::emit(OpBuilder &b, KernelBody &kernel,
                             ValueRange scratch) {
  SpMMLaunch launched = begin(b, kernel, scratch);
  if (tile.shareOutputs != 0)
    createMaps(b, launched, /*shareTokens=*/1);
  auto emitThread = [&](ChunkWalk &&walk, BlockBuilder &block) {
    WarpSpMMEmitter(*this, launched, walk, block).emit();
  };
  WalkedProduct walked{op, shape, tile, plan, launched};
  launch(b, launched, tile.getThreads(), StageLayout(tile, shape).sharedBytes,
         [&](BlockBuilder &block, const ChunkRange &range) {
           if (tile.shareOutputs != 0)
             emitThread(BoxWalk(walked, range, block), block);
           else
             emitThread(PieceWalk(walked, range, block), block);
         },
         {tile.getShares(), 1});
  return epilogue ? epilogue->end(b) : success();
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix on tensor cores.
//
// A warp keeps the sums of its lines and tokens in 128 registers a thread. What
// threads copy lies in rows that are 16 bytes longer than what they hold, what
// tensor copies bring is swizzled: 8 rows of a matrix lie in different banks.

#include "TiledSpMM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

namespace {
class WarpEmitter : public SpMMEmitter {
public:
  WarpEmitter(TiledSpMM &product, const SpMMLaunch &launch, ChunkWalk &walk,
              BlockBuilder &b);

private:
  void begin() override {
    if (half)
      clearZeros();
  }
  SmallVector<Value> multiply(Value stage, ValueRange words,
                              ValueRange sums) override;
  Value getFirstRow() override { return b.div(b.lane, 4); }
  SmallVector<Value> fillRows(ValueRange starts) override {
    return getFragments().fillRows(starts);
  }
  void storeRow(int64_t row, Value output, ValueRange sums) override {
    bsr::gpu::storeRow(b, getFragments().getRow(sums, row), launch.y,
                       {walk.batch, output}, walk.firstToken, walk.isRagged);
  }

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
  void clearZeros();

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
} // namespace

WarpEmitter::WarpEmitter(TiledSpMM &product, const SpMMLaunch &launch,
                         ChunkWalk &walk, BlockBuilder &b)
    : SpMMEmitter(product, launch, walk, b),
      ofLine(b, type, shape.outBlock / fragmentRows,
             tile.warpTokens / fragmentCols),
      fragments(ofLine.fragments) {
  numRows = ofLine.getNumRows();
  rowDistance = 8;
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

SmallVector<Value, 8> WarpEmitter::loadUnit(Value slab, int64_t input,
                                            int64_t token) {
  return fragments.load(b, slabRows.at(b, slab, input, token), layout.slabPitch,
                        /*isInnerLast=*/false, /*isLeft=*/false);
}

SmallVector<Value> WarpEmitter::loadActivations(Value slab, int64_t input) {
  SmallVector<Value> result;
  for (int64_t token = 0; token != tile.warpTokens; token += fragmentRows)
    llvm::append_range(result, loadUnit(slab, input, token));
  return result;
}

SmallVector<Value> WarpEmitter::multiplyBlock(ValueRange operands, Value block,
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

SmallVector<Value> WarpEmitter::multiplyGathered(Value stage, Value word,
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

void WarpEmitter::clearZeros() {
  int64_t words = layout.slabPitch / 4;
  b.loop(b.thread, b.constant(words), blockThreads, {},
         [&](Value word, ValueRange) {
           Value at = b.add(b.mul(word, 4), layout.zeros);
           b.storeShared(b.constant(0), b.at(at));
           return SmallVector<Value>();
         });
}

SmallVector<Value> WarpEmitter::multiply(Value stage, ValueRange words,
                                         ValueRange sums) {
  if (half)
    return ChunkWalk::multiplyLines(
        words, sums, [&](Value word, ValueRange sums) {
          return multiplyGathered(stage, word, sums);
        });
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
}

std::unique_ptr<SpMMEmitter>
bsr::gpu::createWarpEmitter(TiledSpMM &product, const SpMMLaunch &launch,
                            ChunkWalk &walk, BlockBuilder &b) {
  return std::make_unique<WarpEmitter>(product, launch, walk, b);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix by warps, on tensor cores
// or on arithmetic units.
//
// A thread block owns lines of output features, and tokens: how many, the
// model says (SpMMTile). It goes through the chunks of its plan: a stage of
// shared memory holds the activations of a chunk's positions and its blocks,
// while copies for the next stages are under way, of all threads (PieceWalk) or
// of four warps (BoxWalk). A warp owns lines and tokens, and finds its blocks
// in the chunk by a word.

#include "TiledSpMM.h"
#include "BoxWalk.h"
#include "PieceWalk.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::optional<TiledSpMM> TiledSpMM::match(const BlockProduct &operands,
                                          GPUAttr chip, bool isOnTensorCores) {
  TiledSpMM product;
  bool fits = isOnTensorCores ? operands.fitsFragments(chip.getTf32())
                              : operands.fitsLanes();
  if (!fits || !product.setShape(operands, isOnTensorCores) ||
      !product.chooseTile(product.tile, chip))
    return std::nullopt;
  return product;
}

std::optional<TiledSpMM> TiledSpMM::match(const BlockProduct &operands,
                                          GPUAttr chip) {
  auto product = match(operands, chip, /*isOnTensorCores=*/true);
  return product ? product : match(operands, chip, /*isOnTensorCores=*/false);
}

std::optional<ResultSpace> TiledSpMM::getSpace() {
  // An epilogue takes the sums of fragments.
  if (!shape.isOnTensorCores)
    return std::nullopt;
  return getRows(tile.warpTokens);
}

/// What multiplies a block by activations on tensor cores: sums of a line and
/// the warp's tokens. What threads copy lies in rows that are 16 bytes longer
/// than what they hold, what tensor copies bring is swizzled: 8 rows of a
/// matrix lie in different banks.
static std::unique_ptr<Multiplier>
createWarpMultiplier(BlockBuilder &b, Type type, const SpMMShape &shape,
                     const SpMMTile &tile, const ChunkWalk &walk) {
  const StageLayout &layout = walk.layout;
  bool areBoxes = tile.shareOutputs != 0;
  // A slab has inputs as rows: both operands are transposed when loaded, or
  // none.
  WarpMultiplier::Operand block{layout.blockPitch,
                                /*isInnerLast=*/!shape.inputsAreRows,
                                /*first=*/{}, areBoxes};
  WarpMultiplier::Operand slab{layout.slabPitch, /*isInnerLast=*/false,
                               walk.warpToken, areBoxes,
                               shape.inBlock * layout.slabPitch};
  return std::make_unique<WarpMultiplier>(
      b,
      WarpMultiplier::Shape{type, shape.outBlock / fragmentRows,
                            tile.warpTokens / fragmentCols, shape.inBlock,
                            tile.keepsActivations(shape) ? Multiplier::Right
                                                         : Multiplier::Left},
      block, slab);
}

/// The same on arithmetic units. The lanes of a warp are in groups: each has
/// its part of the outputs of a line, and all of the warp's tokens. What a lane
/// reads of a block, all lanes of its group read at once, and what it reads of
/// activations, all groups.
static std::unique_ptr<Multiplier>
createLaneMultiplier(BlockBuilder &b, Type type, const SpMMShape &shape,
                     const SpMMTile &tile, const ChunkWalk &walk) {
  int64_t outputs = tile.getLaneOutputs(shape), side = tile.getLaneSide(shape);
  int64_t lanes = BlockBuilder::warpThreads / tile.groups;
  LaneMultiplier::Operand block{walk.layout.blockPitch,
                                /*isInnerLast=*/!shape.inputsAreRows,
                                outputs,
                                /*together=*/outputs,
                                /*distance=*/outputs,
                                b.mul(b.div(b.lane, lanes), outputs)};
  LaneMultiplier::Operand slab{
      walk.layout.slabPitch,
      /*isInnerLast=*/false,
      tile.getLaneTokens(),
      side,
      side * lanes,
      b.multiplyAdd(b.rem(b.lane, lanes), side, walk.warpToken)};
  // Inputs whose weights are loaded at once.
  int64_t inputs =
      shape.inputsAreRows
          ? 1
          : std::min(copiedBytes / shape.elementBytes, shape.inBlock);
  return std::make_unique<LaneMultiplier>(
      b, LaneMultiplier::Shape{type, shape.inBlock, inputs},
      SumLayout{/*areFragments=*/false, side, lanes, outputs,
                /*rowDistance=*/outputs},
      block, slab);
}

namespace mlir::bsr::gpu {
/// What a thread of a product does, whose `walk` says what is copied.
class SpMMEmitter {
public:
  SpMMEmitter(TiledSpMM &product, const SpMMLaunch &launch, ChunkWalk &walk,
              BlockBuilder &b)
      : product(product), shape(product.shape), tile(product.tile),
        launch(launch), walk(walk), b(b) {
    auto create =
        shape.isOnTensorCores ? createWarpMultiplier : createLaneMultiplier;
    multiplier = create(b, product.op.getX().getType().getElementType(), shape,
                        tile, walk);
  }
  void emit();

private:
  /// The output of row `row` of the lane in a line.
  Value getOutput(int64_t line, int64_t row);
  SmallVector<Value> getInitialSums();
  /// The sums of a line of the warp, row by row.
  SmallVector<Value> getRows(int64_t line, ValueRange sums);
  void store(ValueRange sums);
  void emitEpilogue(ValueRange sums);

  TiledSpMM &product;
  const SpMMShape &shape;
  const SpMMTile &tile;
  const SpMMLaunch &launch;
  ChunkWalk &walk;
  BlockBuilder &b;
  /// What multiplies the blocks of a line.
  std::unique_ptr<Multiplier> multiplier;
};
} // namespace mlir::bsr::gpu

Value SpMMEmitter::getOutput(int64_t line, int64_t row) {
  const SumLayout &layout = multiplier->layout;
  Value first =
      b.multiplyAdd(walk.getLine(line), shape.outBlock, layout.getFirstRow(b));
  return b.add(first, layout.getRow(row));
}

SmallVector<Value> SpMMEmitter::getInitialSums() {
  SmallVector<Value> sums;
  for (int64_t line = 0; line != tile.warpLines; ++line) {
    SmallVector<Value> starts;
    for (int64_t row = 0; row != multiplier->numRows; ++row)
      starts.push_back(product.loadStart(b, launch.kernel, walk.range,
                                         getOutput(line, row)));
    llvm::append_range(sums, multiplier->fillRows(starts));
  }
  return sums;
}

SmallVector<Value> SpMMEmitter::getRows(int64_t line, ValueRange sums) {
  int64_t count = multiplier->numSums;
  return multiplier->getRows(sums.slice(line * count, count));
}

void SpMMEmitter::store(ValueRange sums) {
  for (int64_t line = 0; line != tile.warpLines; ++line)
    walk.whenInside(walk.getLine(line), [&] {
      SmallVector<Value> rows = getRows(line, sums);
      int64_t perRow = int64_t(rows.size()) / multiplier->numRows;
      for (int64_t row = 0; row != multiplier->numRows; ++row)
        storeRow(b, multiplier->layout,
                 ValueRange(rows).slice(row * perRow, perRow), launch.y,
                 {walk.batch, getOutput(line, row)}, walk.firstToken,
                 walk.isRagged);
    });
}

void SpMMEmitter::emitEpilogue(ValueRange sums) {
  WarpSums warp;
  warp.layout = multiplier->layout;
  // Lines of a warp follow each other.
  for (int64_t line = 0; line != tile.warpLines; ++line)
    llvm::append_range(warp.sums, getRows(line, sums));
  warp.numRows = tile.warpLines * multiplier->numRows;
  warp.at = {walk.batch, getOutput(/*line=*/0, /*row=*/0)};
  warp.column = walk.firstToken;
  warp.warpNumber = b.div(warp.column, tile.warpTokens);
  warp.areRowsRagged = shape.numLines % product.plan.lines;
  warp.areColumnsRagged = walk.isRagged;
  product.epilogue->emit(b, warp);
}

void SpMMEmitter::emit() {
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
  walk.run([&] { return getInitialSums(); },
           [&](Value stage, ValueRange words, ValueRange sums) {
             return walk.addBlocks(stage, words, *multiplier, sums);
           },
           finish);
}

LogicalResult TiledSpMM::emit(OpBuilder &b, KernelBody &kernel,
                              ValueRange scratch) {
  int64_t length = 0;
  if (!shape.isOnTensorCores)
    length = std::min(tile.getLaneSide(shape), copiedBytes / shape.outputBytes);
  SpMMLaunch launched = begin(b, kernel, scratch, length);
  if (tile.shareOutputs != 0)
    createMaps(b, launched, /*shareTokens=*/1);
  WalkedProduct walked{op, shape, tile, plan, launched};
  auto emitThread = [&](ChunkWalk &&walk, BlockBuilder &block) {
    SpMMEmitter(*this, launched, walk, block).emit();
  };
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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix by warps, on tensor cores
// or on arithmetic units.
//
// A block of threads owns lines of output features, and tokens: how many, the
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

SpMMEmitter::SpMMEmitter(TiledSpMM &product, const SpMMLaunch &launch,
                         ChunkWalk &walk, BlockBuilder &b)
    : shape(product.shape), tile(product.tile), launch(launch), walk(walk),
      b(b), layout(walk.layout),
      type(product.op.getX().getType().getElementType()), product(product) {}

Value SpMMEmitter::getOutput(int64_t line, int64_t row) {
  Value first =
      b.multiplyAdd(walk.getLine(line), shape.outBlock, getFirstRow());
  return b.add(first, row * rowDistance);
}

SmallVector<Value> SpMMEmitter::getInitialSums() {
  SmallVector<Value> starts;
  for (int64_t line = 0; line != tile.warpLines; ++line)
    for (int64_t row = 0; row != numRows; ++row)
      starts.push_back(product.loadStart(b, launch.kernel, walk.range,
                                         getOutput(line, row)));
  return fillRows(starts);
}

void SpMMEmitter::store(ValueRange sums) {
  for (int64_t line = 0; line != tile.warpLines; ++line)
    walk.whenInside(walk.getLine(line), [&] {
      for (int64_t row = 0; row != numRows; ++row)
        storeRow(line * numRows + row, getOutput(line, row), sums);
    });
}

void SpMMEmitter::emitEpilogue(ValueRange sums) {
  WarpSums warp;
  warp.sums = getFragments().getRows(sums);
  // Lines of a warp follow each other.
  warp.numRows = getFragments().getNumRows();
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
  begin();
  walk.run([&] { return getInitialSums(); },
           [&](Value stage, ValueRange words, ValueRange sums) {
             return multiply(stage, words, sums);
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
    auto create = shape.isOnTensorCores ? createWarpEmitter : createLaneEmitter;
    create(*this, launched, walk, block)->emit();
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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the warps of a thread block go through the chunks of a plan.
//
// A stage of shared memory holds the activations of a chunk's positions and its
// blocks, while copies for the next stages are under way, of all threads
// (AsyncCopyMainloop) or of four warps (TensorCopyMainloop). A warp owns lines
// and tokens, and finds its blocks in the chunk by a word.

#include "WarpMainloop.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

WarpMainloop::WarpMainloop(const SpMMContext &product, const SpMMTile &tile,
                           BlockBuilder &b, Value warp)
    : SpMMMainloop(product, tile.warpLines, /*areNeighbours=*/true,
                   tile.getGrid(product.shape), b),
      tile(tile), layout(tile, product.shape) {
  int64_t warpsAlong = tile.tokens / tile.warpTokens;
  warpToken = b.mul(b.rem(warp, warpsAlong), tile.warpTokens);
  firstToken = b.add(tokenTile, warpToken);
  warpLine = b.mul(b.div(warp, warpsAlong), tile.warpLines);
  positions = getPlanArray(1, tile.slabs);
  words = getPlanArray(2, plan.lines);
  slots = getPlanArray(3, tile.blocks * plan.getPackedBlocks());
  if (shape.getGathered() == 1)
    return;
  // Of the four matrices, the inputs of two are those of one slab and block.
  Value row = b.rem(b.lane, 8), last = b.div(b.lane, 16);
  Value half = b.rem(b.div(b.lane, 8), 2);
  Value token =
      b.multiplyAdd(last, copiedBytes, b.mul(warpToken, shape.elementBytes));
  int64_t outputs = shape.inputsAreRows ? copiedBytes : 8 * layout.blockPitch;
  Value matrix = b.multiplyAdd(row, layout.blockPitch, b.mul(half, outputs));
  gathered = {half, b.multiplyAdd(row, layout.slabPitch, token),
              b.multiplyAdd(last, layout.block, matrix)};
}

/// What multiplies a block by activations on tensor cores: sums of a line and
/// the warp's tokens. What threads copy lies in rows that are 16 bytes longer
/// than what they hold, what tensor copies bring is swizzled: 8 rows of a
/// matrix lie in different banks.
std::unique_ptr<Multiplier> WarpMainloop::createWarpMultiplier(Type type) {
  bool areBoxes = tile.shareOutputs != 0;
  // A slab has inputs as rows: both operands are transposed when loaded, or
  // none.
  WarpMultiplier::Operand block{layout.blockPitch,
                                /*isInnerLast=*/!shape.inputsAreRows,
                                /*first=*/{}, areBoxes};
  WarpMultiplier::Operand slab{layout.slabPitch, /*isInnerLast=*/false,
                               warpToken, areBoxes,
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
/// some of the outputs of a line, and all of the warp's tokens. What a lane
/// reads of a block, all lanes of its group read at once, and what it reads of
/// activations, all groups.
std::unique_ptr<Multiplier> WarpMainloop::createLaneMultiplier(Type type) {
  int64_t outputs = tile.getLaneOutputs(shape), side = tile.getLaneSide(shape);
  int64_t lanes = BlockBuilder::warpThreads / tile.groups;
  LaneMultiplier::Operand block{layout.blockPitch,
                                /*isInnerLast=*/!shape.inputsAreRows,
                                outputs,
                                /*together=*/outputs,
                                /*distance=*/outputs,
                                b.mul(b.div(b.lane, lanes), outputs)};
  LaneMultiplier::Operand slab{
      layout.slabPitch,
      /*isInnerLast=*/false,
      tile.getLaneTokens(),
      side,
      side * lanes,
      b.multiplyAdd(b.rem(b.lane, lanes), side, warpToken)};
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

std::unique_ptr<Multiplier> WarpMainloop::createMultiplier() {
  Type type = SpMMOp(product.op).getX().getType().getElementType();
  return shape.isOnTensorCores ? createWarpMultiplier(type)
                               : createLaneMultiplier(type);
}

SmallVector<Value> WarpMainloop::loadWords(Value chunk) {
  Value first = b.multiplyAdd(clampChunk(chunk), plan.lines,
                              b.add(getFirstLine(), warpLine));
  return b.loadIntegers(b.at(words, first, i32), tile.warpLines);
}

Value WarpMainloop::getFirstLine() { return b.mul(rank, tile.lines); }

Value WarpMainloop::getLine(int64_t line) {
  return b.multiplyAdd(product.range.whole, plan.lines,
                       b.add(getFirstLine(), b.add(warpLine, line)));
}

Value WarpMainloop::getBlock(Value stage, Value word, Value offset) {
  Value first = SpMMPlan::getFirstBlock(b, word);
  return b.add(b.add(b.multiplyAdd(first, layout.block, stage), offset),
               layout.blocks);
}

SmallVector<Value> WarpMainloop::addBlocks(Value stage, ValueRange words,
                                           const Multiplier &multiplier,
                                           ValueRange sums) {
  if (tile.isScanned && !gathered)
    return addScanned(stage, words, multiplier, sums);
  size_t count = sums.size() / words.size();
  SmallVector<Value> result;
  for (auto [line, word] : llvm::enumerate(words)) {
    ValueRange own = sums.slice(line * count, count);
    llvm::append_range(result, gathered
                                   ? addGathered(stage, word, multiplier, own)
                                   : addListed(stage, word, multiplier, own));
  }
  return result;
}

SmallVector<Value> WarpMainloop::addListed(Value stage, Value word,
                                           const Multiplier &multiplier,
                                           ValueRange sums) {
  Value firstSlab = b.add(stage, multiplier.getOffset(Multiplier::Right));
  Value slabs = SpMMPlan::getSlabs(b, word);
  SmallVector<Value> carried(sums);
  carried.append(
      {slabs, getBlock(stage, word, multiplier.getOffset(Multiplier::Left))});
  SmallVector<Value> next = b.loop(
      b.constant(0), b.countOnes(slabs), 1, carried,
      [&](Value, ValueRange carried) {
        Value left = carried[sums.size()], block = carried[sums.size() + 1];
        Value slab =
            b.multiplyAdd(b.countTrailingZeros(left), layout.slab, firstSlab);
        SmallVector<Value> next = multiplier.multiply(
            b.at(block), b.at(slab), carried.take_front(sums.size()));
        next.push_back(b.bitAnd(left, b.add(left, -1)));
        next.push_back(b.add(block, layout.block));
        return next;
      });
  next.truncate(sums.size());
  return next;
}

SmallVector<Value> WarpMainloop::addGathered(Value stage, Value word,
                                             const Multiplier &multiplier,
                                             ValueRange sums) {
  Value slabs = SpMMPlan::getSlabs(b, word);
  Value block = getBlock(stage, word, gathered->block);
  Value firstSlab = b.add(stage, gathered->slab);
  // Any lane of a matrix of zeros may have the address of all of them.
  Value row = b.mul(b.rem(b.lane, 8), layout.slabPitch);
  Value zeros = b.add(b.sub(gathered->slab, row), layout.zeros);
  auto dropFirst = [&](Value left) { return b.bitAnd(left, b.add(left, -1)); };
  Value isFirst = b.equal(gathered->half, b.constant(0));
  SmallVector<Value> carried(sums);
  carried.append({b.select(isFirst, slabs, dropFirst(slabs)), block});
  Value steps = b.div(b.add(b.countOnes(slabs), 1), 2);
  SmallVector<Value> next =
      b.loop(b.constant(0), steps, 1, carried, [&](Value, ValueRange carried) {
        Value left = carried[sums.size()], block = carried[sums.size() + 1];
        Value slab =
            b.multiplyAdd(b.countTrailingZeros(left), layout.slab, firstSlab);
        slab = b.select(b.equal(left, b.constant(0)), zeros, slab);
        SmallVector<Value> next = multiplier.multiply(
            b.at(block), b.at(slab), carried.take_front(sums.size()));
        next.push_back(dropFirst(dropFirst(left)));
        next.push_back(b.add(block, 2 * layout.block));
        return next;
      });
  next.truncate(sums.size());
  return next;
}

void WarpMainloop::clearZeros() {
  if (!gathered)
    return;
  int64_t words = layout.slabPitch / 4;
  b.loop(b.thread, b.constant(words), blockThreads, {},
         [&](Value word, ValueRange) {
           Value at = b.add(b.mul(word, 4), layout.zeros);
           b.storeShared(b.constant(0), b.at(at));
           return SmallVector<Value>();
         });
}

SmallVector<Value> WarpMainloop::addScanned(Value stage, ValueRange words,
                                            const Multiplier &multiplier,
                                            ValueRange sums) {
  // Behind the sums of all lines, their next blocks.
  size_t lines = words.size(), count = sums.size() / lines;
  SmallVector<Value> next(sums);
  for (Value word : words)
    next.push_back(
        getBlock(stage, word, multiplier.getOffset(Multiplier::Left)));
  Value first = multiplier.at(Multiplier::Right, stage), all = words.front();
  for (Value word : words.drop_front())
    all = b.bitOr(all, word);
  for (int64_t slab = 0; slab != tile.slabs; ++slab) {
    auto hasBlock = [&](Value word) {
      Value bit = b.constant(int64_t(1) << slab);
      return b.less(b.constant(0), b.bitAnd(word, bit));
    };
    SmallVector<Value> before = next;
    next = b.when(hasBlock(all), before, [&] {
      SmallVector<Value> activations{
          b.at(first, slab * layout.slab, b.b.getI8Type())};
      if (tile.areActivationsShared(shape))
        activations = multiplier.load(Multiplier::Right, activations.front());
      SmallVector<Value> after = before;
      for (size_t line = 0; line != lines; ++line) {
        SmallVector<Value> own(ValueRange(after).slice(line * count, count));
        Value block = after[lines * count + line];
        own.push_back(block);
        auto add = [&] {
          SmallVector<Value> added = multiplier.multiply(
              b.at(block), activations, ValueRange(own).drop_back());
          added.push_back(b.add(block, layout.block));
          return added;
        };
        own = lines == 1 ? add() : b.when(hasBlock(words[line]), own, add);
        after[lines * count + line] = own.pop_back_val();
        llvm::copy(own, after.begin() + line * count);
      }
      return after;
    });
  }
  next.truncate(sums.size());
  return next;
}

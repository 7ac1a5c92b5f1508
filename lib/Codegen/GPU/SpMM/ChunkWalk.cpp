// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a block of threads goes through the chunks of a plan.

#include "ChunkWalk.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

ChunkWalk::ChunkWalk(const WalkedProduct &product, const ChunkRange &range,
                     BlockBuilder &b, Value warp)
    : layout(product.tile, product.shape), range(range), shape(product.shape),
      tile(product.tile), plan(product.plan), b(b), i32(b.b.getI32Type()) {
  const Activations &activations = shape.activations;
  int64_t tilesPerBatch = llvm::divideCeil(activations.tokens, tile.tokens);
  batch = b.constant(0);
  Value tileNumber = b.block[1];
  if (activations.batches != 1) {
    batch = b.div(tileNumber, tilesPerBatch);
    tileNumber = b.rem(tileNumber, tilesPerBatch);
  }
  tokenTile = b.mul(tileNumber, tile.tokens);
  int64_t warpsAlong = tile.tokens / tile.warpTokens;
  warpToken = b.mul(b.rem(warp, warpsAlong), tile.warpTokens);
  firstToken = b.add(tokenTile, warpToken);
  warpLine = b.mul(b.div(warp, warpsAlong), tile.warpLines);
  isRagged = activations.tokens % tile.tokens != 0;

  int64_t chunks = plan.getMaxChunks();
  auto ofGroup = [&](Value array, int64_t each) {
    return b.atFar(b.getPointer(array), range.group, chunks * each, i32);
  };
  ValueRange arrays = product.launch.memory;
  positions = ofGroup(arrays[1], tile.slabs);
  words = ofGroup(arrays[2], plan.lines);
  slots = ofGroup(arrays[3], tile.blocks * plan.getParts());
}

SmallVector<Value> ChunkWalk::loadWords(Value chunk) {
  Value first = b.multiplyAdd(clampChunk(chunk), plan.lines,
                              b.add(getFirstLine(), warpLine));
  return b.loadIntegers(b.at(words, first, i32), tile.warpLines);
}

Value ChunkWalk::getFirstLine() {
  return b.mul(b.rem(b.block[0], tile.getShares()), tile.lines);
}

Value ChunkWalk::getLine(int64_t line) {
  return b.multiplyAdd(range.whole, plan.lines,
                       b.add(getFirstLine(), b.add(warpLine, line)));
}

void ChunkWalk::whenInside(Value line, llvm::function_ref<void()> body) {
  if (plan.numLines % plan.lines == 0)
    return body();
  b.when(b.less(line, b.constant(plan.numLines)), body);
}

Value ChunkWalk::getBlock(Value stage, Value word, Value blockOffset) {
  Value first = LinePlan::getFirstBlock(b, word);
  return b.add(b.add(b.multiplyAdd(first, layout.block, stage), blockOffset),
               layout.blocks);
}

SmallVector<Value> ChunkWalk::addBlocks(Value stage, ValueRange words,
                                        Value slabOffset, Value blockOffset,
                                        ValueRange sums, Load load,
                                        MultiplyBlock multiply) {
  Value firstSlab = b.add(stage, slabOffset);
  if (!tile.isScanned)
    return multiplyLines(words, sums, [&](Value word, ValueRange sums) {
      return addListed(word, firstSlab, getBlock(stage, word, blockOffset),
                       sums, load, multiply);
    });
  SmallVector<Value> blocks;
  for (Value word : words)
    blocks.push_back(getBlock(stage, word, blockOffset));
  return addScanned(words, firstSlab, blocks, sums, load, multiply);
}

SmallVector<Value> ChunkWalk::addListed(Value word, Value firstSlab,
                                        Value block, ValueRange sums, Load load,
                                        MultiplyBlock multiply) {
  Value slabs = LinePlan::getSlabs(b, word);
  SmallVector<Value> carried(sums);
  carried.append({slabs, block});
  SmallVector<Value> next = b.loop(
      b.constant(0), b.countOnes(slabs), 1, carried,
      [&](Value, ValueRange carried) {
        Value left = carried[sums.size()], block = carried[sums.size() + 1];
        Value slab =
            b.multiplyAdd(b.countTrailingZeros(left), layout.slab, firstSlab);
        SmallVector<Value> next = multiply(load(b.at(slab)), b.at(block),
                                           carried.take_front(sums.size()));
        next.push_back(b.bitAnd(left, b.add(left, -1)));
        next.push_back(b.add(block, layout.block));
        return next;
      });
  next.truncate(sums.size());
  return next;
}

SmallVector<Value> ChunkWalk::addScanned(ValueRange words, Value firstSlab,
                                         ValueRange blocks, ValueRange sums,
                                         Load load, MultiplyBlock multiply) {
  // Behind the sums of all lines, their next blocks.
  size_t lines = words.size(), count = sums.size() / lines;
  SmallVector<Value> next(sums);
  llvm::append_range(next, blocks);
  Value first = b.at(firstSlab), all = words.front();
  for (Value word : words.drop_front())
    all = b.bitOr(all, word);
  for (int64_t slab = 0; slab != tile.slabs; ++slab) {
    auto hasBlock = [&](Value word) {
      Value bit = b.constant(int64_t(1) << slab);
      return b.less(b.constant(0), b.bitAnd(word, bit));
    };
    SmallVector<Value> before = next;
    next = b.when(hasBlock(all), before, [&] {
      SmallVector<Value> operands =
          load(b.at(first, slab * layout.slab, b.b.getI8Type()));
      SmallVector<Value> after = before;
      for (size_t line = 0; line != lines; ++line) {
        SmallVector<Value> own(ValueRange(after).slice(line * count, count));
        Value block = after[lines * count + line];
        own.push_back(block);
        auto add = [&] {
          SmallVector<Value> added =
              multiply(operands, b.at(block), ValueRange(own).drop_back());
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

SmallVector<Value> ChunkWalk::multiplyLines(
    ValueRange words, ValueRange sums,
    llvm::function_ref<SmallVector<Value>(Value, ValueRange)> multiply) {
  size_t count = sums.size() / words.size();
  SmallVector<Value> result;
  for (auto [line, word] : llvm::enumerate(words))
    llvm::append_range(result, multiply(word, sums.slice(line * count, count)));
  return result;
}

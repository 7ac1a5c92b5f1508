// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How warps copy the chunks of a plan by boxes, for a cluster.

#include "TensorCopyMainloop.h"
#include "bsr/Codegen/GPU/Core/Mbarriers.h"
#include "bsr/Codegen/GPU/Core/TensorCopies.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// Those that copy.
static constexpr int64_t copyWarps =
                             warpgroupThreads / BlockBuilder::warpThreads,
                         copiers = warpgroupThreads;
/// Of 384 threads each has 168 registers when they begin. Those that copy need
/// fewer, and leave the rest to those that multiply.
static constexpr int64_t producerRegisters = 40, consumerRegisters = 232;

TensorCopyMainloop::TensorCopyMainloop(const SpMMContext &product,
                                       const SpMMTile &tile, BlockBuilder &b)
    // What bsr-verify-kernels knows of warps is how many there are.
    : WarpMainloop(product, tile, b, b.rem(b.warp, blockWarps)),
      ring(b, tile.stages, layout.size, tile.shareOutputs) {}

SmallVector<Value> TensorCopyMainloop::Sources::pack() const {
  SmallVector<Value> values{word, firstWord, lastWord};
  llvm::append_range(values, positions);
  llvm::append_range(values, slots);
  return values;
}

TensorCopyMainloop::Sources
TensorCopyMainloop::Sources::unpack(ValueRange values, int64_t numPositions) {
  ValueRange rest = values.drop_front(3);
  return {values[0], values[1], values[2],
          SmallVector<Value>(rest.take_front(numPositions)),
          SmallVector<Value>(rest.drop_front(numPositions))};
}

Value TensorCopyMainloop::getCopier() {
  return b.multiplyAdd(b.lane, copyWarps, b.rem(b.warp, copyWarps));
}

Value TensorCopyMainloop::getBox(int64_t pass) {
  Value number = b.add(getCopier(), pass * copiers);
  return b.multiplyAdd(number, tile.shareOutputs, rank);
}

Value TensorCopyMainloop::getSlab(Value box) {
  return b.div(box, tile.tokens / StageLayout::boxTokens);
}

TensorCopyMainloop::Sources TensorCopyMainloop::loadSources(Value chunk) {
  chunk = clampChunk(chunk);
  Value line = b.mul(chunk, plan.lines);
  auto loadWord = [&](Value number) {
    return b.load(b.at(words, b.add(line, number), i32), i32);
  };
  Sources sources;
  sources.word = loadWord(b.rem(b.lane, plan.lines));
  sources.firstWord = loadWord(getFirstLine());
  sources.lastWord = loadWord(b.add(getFirstLine(), tile.lines - 1));
  // Lanes that have none load the last.
  for (int64_t pass = 0; pass * copiers < getNumBoxes(); ++pass) {
    Value slab = b.min(getSlab(getBox(pass)), b.constant(tile.slabs - 1));
    sources.positions.push_back(b.load(
        b.at(positions, b.multiplyAdd(chunk, tile.slabs, slab), i32), i32));
  }
  for (int64_t first = 0; first < tile.blocks; first += copiers) {
    Value number =
        b.min(b.add(getCopier(), first), b.constant(tile.blocks - 1));
    sources.slots.push_back(b.load(
        b.at(slots, b.multiplyAdd(chunk, tile.blocks, number), i32), i32));
  }
  return sources;
}

Value TensorCopyMainloop::getLaneRank() {
  return b.div(b.rem(b.lane, plan.lines), tile.lines);
}

TensorCopyMainloop::Needs TensorCopyMainloop::getNeeds(Value word) {
  Value slabs = SpMMPlan::getSlabs(b, word);
  for (int64_t mask = 1; mask < tile.lines; mask *= 2)
    slabs = b.bitOr(slabs, b.exchange(slabs, mask));
  Needs needs{slabs};
  for (int64_t other = 1; other != tile.shareOutputs; ++other)
    needs.push_back(b.exchange(slabs, other * tile.lines));
  return needs;
}

void TensorCopyMainloop::copyBoxes(Value begin, const Chunk &chunk,
                                   Value barrier) {
  int64_t boxes = tile.tokens / StageLayout::boxTokens;
  for (size_t pass = 0; pass != chunk.sources.positions.size(); ++pass) {
    Value position = chunk.sources.positions[pass];
    Value box = getBox(int64_t(pass));
    Value slab = getSlab(box);
    Value blocks = b.constant(0);
    for (auto [other, need] : llvm::enumerate(chunk.needs)) {
      Value bit = b.bitAnd(b.shiftRight(need, slab), b.constant(1));
      Value number = b.bitXor(getLaneRank(), b.constant(int64_t(other)));
      blocks = b.bitOr(blocks, b.shiftLeft(bit, number));
    }
    auto copy = [&] {
      Value token =
          b.multiplyAdd(b.rem(box, boxes), StageLayout::boxTokens, tokenTile);
      Value to =
          b.multiplyAdd(box, shape.inBlock * StageLayout::boxBytes, begin);
      product.launch.x.copy(b, b.at(to),
                            {batch, b.mul(position, shape.inBlock), token},
                            barrier, tile.shareOutputs == 1 ? Value() : blocks);
    };
    // Slabs that a chunk lacks are none of any line.
    int64_t first = int64_t(pass) * copiers;
    Value isNeeded = b.less(b.constant(0), blocks);
    if (first + copiers > getNumBoxes())
      isNeeded = b.bitAnd(
          isNeeded, b.less(getCopier(), b.constant(getNumBoxes() - first)));
    b.when(isNeeded, copy);
  }
}

void TensorCopyMainloop::copyBlocks(Value begin, const Chunk &chunk,
                                    Value barrier) {
  for (size_t pass = 0; pass != chunk.sources.slots.size(); ++pass) {
    Value slot = chunk.sources.slots[pass];
    Value number = b.add(getCopier(), int64_t(pass) * copiers);
    Value isOwn = b.bitAnd(b.less(number, chunk.end),
                           b.less(chunk.first, b.add(number, 1)));
    b.when(isOwn, [&] {
      Value to =
          b.add(b.multiplyAdd(number, layout.block, begin), layout.blocks);
      copyBox(b, b.at(to), product.launch.valuesMap,
              b.mul(slot, shape.blockRows), b.constant(0), barrier,
              /*blocks=*/Value());
    });
  }
}

TensorCopyMainloop::Chunk
TensorCopyMainloop::findChunk(const Sources &sources) {
  Needs needs = getNeeds(sources.word);
  Value first = SpMMPlan::getFirstBlock(b, sources.firstWord);
  Value last = SpMMPlan::getSlabs(b, sources.lastWord);
  Value end =
      b.add(SpMMPlan::getFirstBlock(b, sources.lastWord), b.countOnes(last));
  return {sources, needs, first, end};
}

void TensorCopyMainloop::copyChunk(Stage stage, const Chunk &chunk) {
  Value full = ring.getFull(stage);
  b.when(b.equal(getCopier(), b.constant(0)), [&] {
    // The lane's line is one of the first thread block.
    Value own = chunk.needs[0];
    for (int64_t other = 1; other != tile.shareOutputs; ++other)
      own = b.select(b.equal(rank, b.constant(other)), chunk.needs[other], own);
    Value slabs = b.mul(b.countOnes(own), layout.slab);
    expectBytes(
        b, full,
        b.multiplyAdd(b.sub(chunk.end, chunk.first), layout.block, slabs));
  });
  Value begin = ring.getBegin(stage);
  copyBoxes(begin, chunk, full);
  copyBlocks(begin, chunk, full);
}

void TensorCopyMainloop::produce() {
  size_t numPositions = 0;
  auto load = [&](Value chunk) {
    Sources sources = loadSources(chunk);
    numPositions = sources.positions.size();
    return sources.pack();
  };
  Stage stage = ring.getFirst();
  Chunk copied;
  ring.produce(
      {product.range.first, product.range.end}, stage,
      [&](Value, Stage stage, ValueRange) { copyChunk(stage, copied); }, load,
      [&](ValueRange sources) {
        copied = findChunk(Sources::unpack(sources, numPositions));
      });
}

void TensorCopyMainloop::consume(const Multiplier &multiplier, Begin begin,
                                 Finish finish) {
  Stage stage = ring.getFirst();
  finish(ring.consume(
      {product.range.first, product.range.end}, stage, begin(),
      [&](Value, Value begin, ValueRange words, ValueRange sums) {
        return addBlocks(begin, words, multiplier, sums);
      },
      [&](Value chunk) { return loadWords(chunk); }));
}

void TensorCopyMainloop::run(const Multiplier &multiplier, Begin begin,
                             Finish finish) {
  Value isProducer = b.less(b.constant(blockThreads - 1), b.thread);
  ring.split(
      blockThreads, isProducer,
      [&] {
        b.setRegisters(consumerRegisters, /*isMore=*/true);
        consume(multiplier, begin, finish);
      },
      [&] {
        b.setRegisters(producerRegisters, /*isMore=*/false);
        produce();
      });
}

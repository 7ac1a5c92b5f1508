// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix on arithmetic units.
//
// The lanes of a warp are in groups: each has its part of the outputs of a
// line, and all of the warp's tokens. A lane keeps the sums of some outputs and
// tokens in registers: what it reads of a block, all lanes of its group read at
// once, and what it reads of activations, all groups.

#include "TiledSpMM.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

namespace {
class LaneEmitter : public SpMMEmitter {
public:
  LaneEmitter(TiledSpMM &product, const SpMMLaunch &launch, ChunkWalk &walk,
              BlockBuilder &b);

private:
  /// What is multiplied without a loop around it, at most.
  static constexpr int64_t mostProducts = 512;

  int64_t getSum(int64_t output, int64_t token) const {
    return output * tokens + token;
  }
  SmallVector<Value> multiply(Value stage, ValueRange words,
                              ValueRange sums) override;
  Value getFirstRow() override { return b.mul(group, outputs); }
  SmallVector<Value> fillRows(ValueRange starts) override;
  void storeRow(int64_t row, Value output, ValueRange sums) override;
  /// Adds the products of a block to `sums`.
  SmallVector<Value> multiplyBlock(Value slab, Value block, ValueRange sums);
  /// Those of inputs from `input` on, where `slab` and `block` begin.
  void multiplyInputs(Value slab, Value block, int64_t input,
                      MutableArrayRef<Value> sums);
  /// The lane's tokens of an input of a slab.
  SmallVector<Value> loadTokens(Value slab, int64_t input);
  /// The weights of the lane's outputs, and as many inputs as lie side by side,
  /// from `input` on: of each input those of all outputs.
  SmallVector<SmallVector<Value>> loadWeights(Value block, int64_t input);

  /// Of a lane: outputs of each line, and tokens, of which `side` lie side by
  /// side; the tokens of a group lie so in turns.
  int64_t outputs, tokens, side;
  /// Inputs whose weights are loaded at once.
  int64_t inputs;
  /// The group of the lane, and its number there.
  Value group, member;
  /// Where what the lane reads of a slab and of a block begins.
  Value slabOffset, blockOffset;
};
} // namespace

LaneEmitter::LaneEmitter(TiledSpMM &product, const SpMMLaunch &launch,
                         ChunkWalk &walk, BlockBuilder &b)
    : SpMMEmitter(product, launch, walk, b),
      outputs(tile.getLaneOutputs(shape)), tokens(tile.getLaneTokens()),
      side(tile.getLaneSide(shape)) {
  int64_t most = copiedBytes / shape.elementBytes;
  inputs = shape.inputsAreRows ? 1 : std::min(most, shape.inBlock);
  int64_t lanes = BlockBuilder::warpThreads / tile.groups;
  group = b.div(b.lane, lanes);
  member = b.rem(b.lane, lanes);
  numRows = outputs;
  slabOffset =
      b.mul(b.multiplyAdd(member, side, walk.warpToken), shape.elementBytes);
  int64_t stride = shape.inputsAreRows ? 1 : shape.inBlock;
  blockOffset = b.mul(group, outputs * stride * shape.elementBytes);
}

SmallVector<Value> LaneEmitter::fillRows(ValueRange starts) {
  SmallVector<Value> sums;
  for (Value start : starts)
    sums.append(tokens, start);
  return sums;
}

SmallVector<Value> LaneEmitter::loadTokens(Value slab, int64_t input) {
  SmallVector<Value> result;
  int64_t turn = side * BlockBuilder::warpThreads / tile.groups;
  for (int64_t first = 0; first != tokens / side; ++first)
    llvm::append_range(result,
                       b.loadFloats(b.at(slab,
                                         input * layout.slabPitch +
                                             first * turn * shape.elementBytes,
                                         b.b.getI8Type()),
                                    type, side));
  return result;
}

SmallVector<SmallVector<Value>> LaneEmitter::loadWeights(Value block,
                                                         int64_t input) {
  SmallVector<SmallVector<Value>> result(inputs);
  int64_t most = copiedBytes / shape.elementBytes;
  auto load = [&](int64_t output, int64_t count) {
    int64_t element = shape.inputsAreRows ? input * shape.outBlock + output
                                          : output * shape.inBlock + input;
    return b.loadFloats(b.at(block, element, type), type, count);
  };
  if (shape.inputsAreRows) {
    int64_t count = std::min(most, outputs);
    for (int64_t output = 0; output != outputs; output += count)
      llvm::append_range(result[0], load(output, count));
    return result;
  }
  for (int64_t output = 0; output != outputs; ++output)
    for (auto [weights, weight] : llvm::zip_equal(result, load(output, inputs)))
      weights.push_back(weight);
  return result;
}

void LaneEmitter::multiplyInputs(Value slab, Value block, int64_t input,
                                 MutableArrayRef<Value> sums) {
  SmallVector<SmallVector<Value>> weights = loadWeights(block, input);
  for (int64_t i = 0; i != inputs; ++i) {
    SmallVector<Value> activations = loadTokens(slab, input + i);
    for (int64_t output = 0; output != outputs; ++output)
      for (int64_t token = 0; token != tokens; ++token) {
        Value &sum = sums[getSum(output, token)];
        sum = math::FmaOp::create(b.b, b.loc, weights[i][output],
                                  activations[token], sum);
      }
  }
}

SmallVector<Value> LaneEmitter::multiplyBlock(Value slab, Value block,
                                              ValueRange sums) {
  int64_t step = std::clamp<int64_t>(mostProducts / getSum(outputs, 0), inputs,
                                     shape.inBlock);
  auto multiply = [&](Value slab, Value block, ValueRange sums) {
    SmallVector<Value> next(sums);
    for (int64_t input = 0; input != step; input += inputs)
      multiplyInputs(slab, block, input, next);
    return next;
  };
  if (step == shape.inBlock)
    return multiply(slab, block, sums);
  int64_t stride = shape.inputsAreRows ? shape.outBlock : 1;
  return b.loop(b.constant(0), b.constant(shape.inBlock), step, sums,
                [&](Value input, ValueRange sums) {
                  Value row = b.mul(input, layout.slabPitch);
                  return multiply(b.at(slab, row, b.b.getI8Type()),
                                  b.at(block, b.mul(input, stride), type),
                                  sums);
                });
}

SmallVector<Value> LaneEmitter::multiply(Value stage, ValueRange words,
                                         ValueRange sums) {
  return walk.addBlocks(
      stage, words, slabOffset, blockOffset, sums,
      [](Value slab) { return SmallVector<Value>{slab}; },
      [&](ValueRange slab, Value block, ValueRange sums) {
        return multiplyBlock(slab.front(), block, sums);
      });
}

void LaneEmitter::storeRow(int64_t row, Value output, ValueRange sums) {
  int64_t turn = side * BlockBuilder::warpThreads / tile.groups;
  const StoredRows &y = launch.y;
  for (int64_t token = 0; token != tokens; token += y.length) {
    Value first = b.multiplyAdd(
        member, side,
        b.add(walk.firstToken, token / side * turn + token % side));
    storeVector(b, sums.slice(getSum(row, token), y.length), y,
                {walk.batch, output}, first, walk.isRagged);
  }
}

std::unique_ptr<SpMMEmitter>
bsr::gpu::createLaneEmitter(TiledSpMM &product, const SpMMLaunch &launch,
                            ChunkWalk &walk, BlockBuilder &b) {
  return std::make_unique<LaneEmitter>(product, launch, walk, b);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix on arithmetic units.
//
// A block of threads goes through the chunks of its plan (PieceWalk). The lanes
// of a warp are in groups: each has its part of the outputs of a line, and all
// of the warp's tokens. A lane keeps the sums of some outputs and tokens in
// registers: what it reads of a block, all lanes of its group read at once, and
// what it reads of activations, all groups.

#include "LaneSpMM.h"
#include "PieceWalk.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::optional<LaneSpMM> LaneSpMM::match(const BlockProduct &operands,
                                        GPUAttr chip) {
  LaneSpMM product;
  if (!operands.fitsLanes() ||
      !product.setShape(operands, /*isOnTensorCores=*/false) ||
      !product.chooseTile(product.tile, chip))
    return std::nullopt;
  return product;
}

namespace mlir::bsr::gpu {
/// What a thread does.
class LaneSpMMEmitter {
public:
  LaneSpMMEmitter(LaneSpMM &product, const SpMMLaunch &launch,
                  const ChunkRange &range, BlockBuilder &b);
  void emit();

private:
  /// What is multiplied without a loop around it, at most.
  static constexpr int64_t mostProducts = 512;

  int64_t getSum(int64_t output, int64_t token) const {
    return output * tokens + token;
  }
  SmallVector<Value> getInitialSums();
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
  void store(ValueRange sums);

  LaneSpMM &product;
  const SpMMTile &tile;
  const SpMMShape &shape;
  const SpMMLaunch &launch;
  const StoredRows &y;
  BlockBuilder &b;
  PieceWalk walk;
  Type type;
  /// Of a lane: outputs of each line, and tokens, of which `side` lie side by
  /// side; the tokens of a group lie so in turns.
  int64_t outputs, tokens, side;
  /// Inputs whose weights are loaded at once.
  int64_t inputs;
  /// The group of the lane, and its number there.
  Value group, member;
};
} // namespace mlir::bsr::gpu

LaneSpMMEmitter::LaneSpMMEmitter(LaneSpMM &product, const SpMMLaunch &launch,
                                 const ChunkRange &range, BlockBuilder &b)
    : product(product), tile(product.tile), shape(product.shape),
      launch(launch), y(launch.y), b(b),
      walk({product.op, shape, tile, product.plan, launch}, range, b),
      type(product.op.getX().getType().getElementType()),
      outputs(tile.getLaneOutputs(shape)), tokens(tile.getLaneTokens()),
      side(tile.getLaneSide(shape)) {
  int64_t most = copiedBytes / shape.elementBytes;
  inputs = shape.inputsAreRows ? 1 : std::min(most, shape.inBlock);
  int64_t lanes = BlockBuilder::warpThreads / tile.groups;
  group = b.div(b.lane, lanes);
  member = b.rem(b.lane, lanes);
}

SmallVector<Value> LaneSpMMEmitter::getInitialSums() {
  SmallVector<Value> sums;
  for (int64_t line = 0; line != tile.warpLines; ++line) {
    Value first = b.multiplyAdd(walk.getLine(line), shape.outBlock,
                                b.mul(group, outputs));
    for (int64_t output = 0; output != outputs; ++output)
      sums.append(tokens, product.loadStart(b, launch.kernel, walk.range,
                                            b.add(first, output)));
  }
  return sums;
}

SmallVector<Value> LaneSpMMEmitter::loadTokens(Value slab, int64_t input) {
  SmallVector<Value> result;
  int64_t turn = side * BlockBuilder::warpThreads / tile.groups;
  for (int64_t first = 0; first != tokens / side; ++first)
    llvm::append_range(result,
                       b.loadFloats(b.at(slab,
                                         input * walk.layout.slabPitch +
                                             first * turn * shape.elementBytes,
                                         b.b.getI8Type()),
                                    type, side));
  return result;
}

SmallVector<SmallVector<Value>> LaneSpMMEmitter::loadWeights(Value block,
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

void LaneSpMMEmitter::multiplyInputs(Value slab, Value block, int64_t input,
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

SmallVector<Value> LaneSpMMEmitter::multiplyBlock(Value slab, Value block,
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
                  Value row = b.mul(input, walk.layout.slabPitch);
                  return multiply(b.at(slab, row, b.b.getI8Type()),
                                  b.at(block, b.mul(input, stride), type),
                                  sums);
                });
}

void LaneSpMMEmitter::store(ValueRange sums) {
  int64_t turn = side * BlockBuilder::warpThreads / tile.groups;
  for (int64_t line = 0; line != tile.warpLines; ++line) {
    Value number = walk.getLine(line);
    walk.whenInside(number, [&] {
      Value feature =
          b.multiplyAdd(number, shape.outBlock, b.mul(group, outputs));
      for (int64_t output = 0; output != outputs; ++output)
        for (int64_t token = 0; token != tokens; token += y.length) {
          Value first = b.multiplyAdd(
              member, side,
              b.add(walk.firstToken, token / side * turn + token % side));
          storeVector(
              b, sums.slice(getSum(line * outputs + output, token), y.length),
              y, {walk.batch, b.add(feature, output)}, first, walk.isRagged);
        }
    });
  }
}

void LaneSpMMEmitter::emit() {
  Value slabOffset =
      b.mul(b.multiplyAdd(member, side, walk.warpToken), shape.elementBytes);
  int64_t stride = shape.inputsAreRows ? 1 : shape.inBlock;
  Value blockOffset = b.mul(group, outputs * stride * shape.elementBytes);
  auto finish = [&](ValueRange sums) {
    product.finish(b, walk.range, launch.memory, /*rank=*/b.constant(0), sums,
                   [&](ValueRange sums) { store(sums); });
  };
  if (walk.range.numParts)
    return finish(getInitialSums());
  walk.run([&] { return getInitialSums(); },
           [&](Value stage, ValueRange words, ValueRange sums) {
             return walk.addBlocks(
                 stage, words, slabOffset, blockOffset, sums,
                 [](Value slab) { return SmallVector<Value>{slab}; },
                 [&](ValueRange slab, Value block, ValueRange sums) {
                   return multiplyBlock(slab.front(), block, sums);
                 });
           },
           finish);
}

LogicalResult LaneSpMM::emit(OpBuilder &b, KernelBody &kernel,
                             ValueRange scratch) {
  int64_t length =
      std::min(tile.getLaneSide(shape), copiedBytes / shape.outputBytes);
  SpMMLaunch launched = begin(b, kernel, scratch, length);
  launch(b, launched, blockThreads, StageLayout(tile, shape).sharedBytes,
         [&](BlockBuilder &block, const ChunkRange &range) {
           LaneSpMMEmitter(*this, launched, range, block).emit();
         });
  return success();
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of attention on tensor cores, of which one operand may be in
// registers.

#include "AttentionFragments.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// How `operand` lies in shared memory, whose inner numbers are features or
/// tokens.
static WarpMultiplier::Operand getOperand(const AttentionTile &operand,
                                          bool areFeaturesInner,
                                          Value first = {}) {
  return {operand.getPitch(), operand.matrix->isFeatureLast == areFeaturesInner,
          first};
}

WarpMultiplier LeftFragments::getMultiplier(const AttentionTile &right) const {
  return WarpMultiplier(*b,
                        {type, /*rows=*/1, right.tokens / fragmentCols,
                         operand.matrix->getPaddedFeatures()},
                        getOperand(operand, /*areFeaturesInner=*/true,
                                   b->mul(b->warp, fragmentRows)),
                        getOperand(right, /*areFeaturesInner=*/true));
}

void LeftFragments::hold() {
  WarpMultiplier multiplier = getMultiplier(operand);
  held =
      multiplier.load(Multiplier::Left, multiplier.at(Multiplier::Left, begin));
}

FragmentSums LeftFragments::multiply(const AttentionTile &right,
                                     Value rightBegin) {
  WarpMultiplier multiplier = getMultiplier(right);
  SmallVector<Value> left = held;
  if (left.empty())
    left = {multiplier.at(Multiplier::Left, begin)};
  return multiplier.multiply(left, multiplier.at(Multiplier::Right, rightBegin),
                             b->zeros(multiplier.numSums));
}

FragmentSums bsr::gpu::addProducts(BlockBuilder &b, Type type, ValueRange sums,
                                   ValueRange scores,
                                   const AttentionTile &right, Value begin) {
  // Scores are in registers: two fragments of sums, side by side, are one of a
  // left operand.
  WarpMultiplier multiplier(
      b,
      {type, /*rows=*/1, right.matrix->getPaddedFeatures() / fragmentCols,
       right.tokens},
      /*left=*/{}, getOperand(right, /*areFeaturesInner=*/false));
  auto packScores = [&](int64_t, int64_t token) {
    SmallVector<Value, 8> left;
    for (int64_t i = 0; i != 4; ++i)
      left.push_back(
          packPair(b, scores.slice(token / fragmentCols * 4 + 2 * i, 2), type));
    return left;
  };
  Value pointer = multiplier.at(Multiplier::Right, begin);
  return multiplier.multiplyUnits(
      packScores,
      [&](int64_t feature, int64_t token) {
        return multiplier.getUnit(Multiplier::Right, pointer, feature, token);
      },
      sums);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the emitter does across the lanes of vectors: sums and transpositions,
// by trees of shuffles. Upstream's vector.multi_reduction and vector.transpose
// are on vectors of two dimensions, which these rows, each in a register, are
// not.

#include "bsr/Codegen/CPU/Emitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

Value Emitter::sumLanes(Value value) {
  if (!isa<VectorType>(value.getType()))
    return value;
  return vector::ReductionOp::create(b, loc, vector::CombiningKind::ADD, value,
                                     arith::FastMathFlags::reassoc);
}

Value Emitter::sumLanes(ArrayRef<Value> values, int64_t groups) {
  auto type = dyn_cast<VectorType>(values.front().getType());
  int64_t lanes = type ? type.getNumElements() : 1, count = values.size();
  assert((groups == 1 || groups * count == lanes) &&
         "groups have as many lanes as there are vectors");
  if (!llvm::isPowerOf2_64(lanes) || !llvm::isPowerOf2_64(count) ||
      count > lanes || lanes < 4) {
    SmallVector<Value> sums = llvm::map_to_vector(
        values, [&](Value value) { return sumLanes(value); });
    return vector::FromElementsOp::create(
        b, loc, VectorType::get({count}, sums.front().getType()), sums);
  }
  auto add = [&](Value x, Value y, ArrayRef<int64_t> low,
                 ArrayRef<int64_t> high) -> Value {
    Value lower = vector::ShuffleOp::create(b, loc, x, y, low);
    Value upper = vector::ShuffleOp::create(b, loc, x, y, high);
    return arith::AddFOp::create(b, loc, lower, upper);
  };
  // Each round adds halves of the lanes of two vectors and keeps both sums:
  // lanes whose number has the bit hold the second one's.
  SmallVector<Value> sums(values);
  int64_t bit = 1;
  for (; sums.size() > 1; bit *= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t lane = 0; lane != lanes; ++lane) {
      int64_t from = lane & bit ? lanes : 0;
      // The first round in the order of an unpack instruction.
      int64_t kept = bit == 1 ? (lane & ~3) + lane % 4 / 2 : lane & ~bit;
      low.push_back(from + kept);
      high.push_back(from + kept + (bit == 1 ? 2 : bit));
    }
    SmallVector<Value> next;
    for (size_t pair = 0; pair != sums.size(); pair += 2)
      next.push_back(add(sums[pair], sums[pair + 1], low, high));
    sums = std::move(next);
  }
  // The lanes above hold more summands of the same sums.
  Value sum = sums.front();
  if (count == 1)
    return vector::FromElementsOp::create(
        b, loc, VectorType::get({1}, type.getElementType()), sumLanes(sum));
  for (; lanes > groups * count; lanes /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t lane = 0; lane != lanes / 2; ++lane) {
      low.push_back(lane);
      high.push_back(lane + lanes / 2);
    }
    sum = add(sum, sum, low, high);
  }
  return sum;
}

SmallVector<Value> Emitter::transpose(ArrayRef<Value> rows) {
  auto type = dyn_cast<VectorType>(rows.front().getType());
  int64_t lanes = type ? type.getNumElements() : 1, count = rows.size();
  int64_t size = lanes / count;
  SmallVector<Value> result(rows);
  // Rows number `i` and `i + distance` become what `low` and `high` pick.
  auto exchange = [&](int64_t distance,
                      llvm::function_ref<int64_t(int64_t)> low,
                      llvm::function_ref<int64_t(int64_t)> high) {
    SmallVector<int64_t> masks[2];
    for (int64_t lane = 0; lane != lanes; ++lane) {
      masks[0].push_back(low(lane));
      masks[1].push_back(high(lane));
    }
    for (int64_t i = 0; i != count; ++i) {
      if (i & distance)
        continue;
      Value x = result[i], y = result[i + distance];
      result[i] = vector::ShuffleOp::create(b, loc, x, y, masks[0]);
      result[i + distance] = vector::ShuffleOp::create(b, loc, x, y, masks[1]);
    }
  };
  // Squares of `distance` change places, the largest first.
  for (int64_t distance = count / 2; distance; distance /= 2) {
    int64_t step = distance * size;
    exchange(
        distance,
        [&](int64_t lane) { return lane & step ? lanes + lane - step : lane; },
        [&](int64_t lane) { return lane & step ? lanes + lane : lane + step; });
  }
  return result;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums that thread blocks leave in memory of groups that are cut.

#include "SplitKSums.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <numeric>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

int64_t SplitKSums::getLength() const { return std::gcd(sums, int64_t(4)); }

MemRefType SplitKSums::getType(MLIRContext *context) const {
  int64_t length = getLength();
  return MemRefType::get(
      {slices * share, tiles, sums / length, threads, length},
      Float32Type::get(context));
}

void SplitKSums::store(BlockBuilder &b, Value memory, Value slice, Value rank,
                       ValueRange values) const {
  int64_t length = getLength();
  for (int64_t first = 0; first != sums; first += length) {
    Value vector = vector::FromElementsOp::create(
        b.b, b.loc, VectorType::get(length, b.b.getF32Type()),
        values.slice(first, length));
    b.store(vector, memory,
            {b.multiplyAdd(slice, share, rank), b.block[1],
             b.constant(first / length), b.thread, b.constant(0)});
  }
}

SmallVector<Value> SplitKSums::add(BlockBuilder &b, Value memory,
                                   const ChunkRange &range, Value rank,
                                   ValueRange values) const {
  Type f32 = b.b.getF32Type();
  int64_t length = getLength();
  Value tile =
      b.multiplyAdd(b.block[1], sums * threads, b.mul(b.thread, length));
  Value pointer = b.at(b.getPointer(memory), tile, f32);
  Value end = b.add(range.firstSlice, range.numSlices);
  return b.loop(
      range.firstSlice, end, 1, values, [&](Value slice, ValueRange carried) {
        Value from = b.atFar(pointer, b.multiplyAdd(slice, share, rank),
                             tiles * sums * threads, f32);
        SmallVector<Value> next;
        for (int64_t first = 0; first != sums; first += length) {
          SmallVector<Value> others =
              b.loadFloats(b.at(from, first * threads, f32), f32, length);
          for (auto [sum, other] :
               llvm::zip_equal(carried.slice(first, length), others))
            next.push_back(arith::AddFOp::create(b.b, b.loc, sum, other));
        }
        return next;
      });
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocking of the token dimensions for sums over tokens.

#include "TokenRounds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

void TokenRounds::divide(int64_t limit, int64_t panel) {
  int64_t taken = activations.tokens;
  for (int64_t extent : llvm::reverse(activations.leading)) {
    int64_t inner = taken > limit ? 1 : getDivisor(extent, limit / taken);
    slices.insert(slices.begin(), inner);
    rounds.insert(rounds.begin(), extent / inner);
    taken = inner == extent ? taken * inner : limit + 1;
  }
  sliceLanes = activations.tokens;
  if (sliceLanes > limit && sliceLanes % panel == 0) {
    // Rounds that are much shorter than they might be are not worth it.
    int64_t divisor = panel * getDivisor(sliceLanes / panel,
                                         std::max<int64_t>(1, limit / panel));
    if (4 * divisor > limit)
      sliceLanes = divisor;
  }
  rounds.push_back(activations.tokens / sliceLanes);
}

int64_t TokenRounds::size() const {
  int64_t size = sliceLanes;
  for (int64_t extent : slices)
    size *= extent;
  return size;
}

SmallVector<Value> TokenRounds::forRuns(
    Emitter &e, const Round &round, int64_t first, int64_t size, int64_t count,
    ValueRange inits,
    llvm::function_ref<SmallVector<Value>(const Tokens &, ValueRange)> body)
    const {
  SmallVector<int64_t> extents(slices);
  extents.push_back(count);
  return e.nest(extents, inits, [&](ArrayRef<Index> ivs, ValueRange carried) {
    Tokens at;
    Index slice = Index::constant(0);
    for (auto [outer, iv, extent] :
         llvm::zip(round.at, ivs.drop_back(), slices)) {
      at.leading.push_back(e.multiplyAdd(outer, extent, iv));
      slice = e.multiplyAdd(slice, extent, iv);
    }
    Index lane = e.multiplyAdd(ivs.back(), size, Index::constant(first));
    at.lane = e.multiplyAdd(round.at.back(), sliceLanes, lane);
    at.number = e.multiplyAdd(slice, sliceLanes, lane);
    return body(at, carried);
  });
}

Value cpu::addToStored(Emitter &e, Value sum, Value memref,
                       ArrayRef<Index> place, const Round &round) {
  Type type = cast<MemRefType>(memref.getType()).getElementType();
  sum = e.convert(sum, type);
  if (!round.isFirst)
    return sum;
  Value zero =
      e.broadcast(arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(type)));
  Value old = arith::SelectOp::create(e.b, e.loc, round.isFirst, zero,
                                      e.load(memref, place));
  return arith::AddFOp::create(e.b, e.loc, old, sum);
}

void cpu::storeSum(Emitter &e, Value sum, Value memref, ArrayRef<Index> place,
                   const Round &round) {
  e.store(addToStored(e, sum, memref, place, round), memref, place);
}

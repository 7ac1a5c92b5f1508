// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of pairs of bf16, added up in lanes of f32.

#include "PairProducts.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Within how many bf16 an unpack instruction works: 16 bytes.
static constexpr int64_t group = 8;

static int64_t getLanes(Value vector) {
  return cast<VectorType>(vector.getType()).getNumElements();
}

/// Lanes of f32 of one instruction, for `width` of them in all.
static int64_t getDotLanes(const CPUTarget &target, int64_t width) {
  return std::min<int64_t>({target.lanes, width, 16});
}

bool cpu::arePaired(const CPUTarget &target, Value a, Value b, Type sumType) {
  auto isBF16 = [](Value tensor) {
    return getElementTypeOrSelf(tensor.getType()).isBF16();
  };
  return target.hasPairDots && sumType.isF32() && isBF16(a) && isBF16(b);
}

bool cpu::canZip(const CPUTarget &target, int64_t width) {
  return target.hasPairDots && width >= 4;
}

/// The number of the token, of those that `zip` takes, that lane `lane` of sums
/// is of: instructions of `dotLanes` sums take turns, the first the lower
/// halves of groups of tokens, the second the upper ones.
static int64_t getToken(int64_t lane, int64_t dotLanes) {
  int64_t half = group / 2, tokens = 2 * dotLanes;
  int64_t part = lane / dotLanes, within = lane % dotLanes;
  int64_t base = part / 2 * tokens;
  return base + within / half * group + part % 2 * half + within % half;
}

/// The tokens of `width` lanes of sums in the order of `zip`.
static SmallVector<int64_t> getTokens(const CPUTarget &target, int64_t width) {
  int64_t dotLanes = getDotLanes(target, width);
  return llvm::map_to_vector(llvm::seq(width), [&](int64_t lane) {
    return width == dotLanes ? lane : getToken(lane, dotLanes);
  });
}

SmallVector<Value> cpu::zip(Emitter &e, Value x, Value y) {
  int64_t width = getLanes(x);
  int64_t dotLanes = getDotLanes(e.target, width);
  SmallVector<int64_t> tokens = getTokens(e.target, width);
  SmallVector<Value> pairs;
  for (int64_t first = 0; first != width; first += dotLanes) {
    SmallVector<int64_t> mask;
    for (int64_t token : ArrayRef(tokens).slice(first, dotLanes))
      mask.append({token, width + token});
    pairs.push_back(vector::ShuffleOp::create(e.b, e.loc, x, y, mask));
  }
  return pairs;
}

Value cpu::inOrderOfZip(Emitter &e, Value sums) {
  SmallVector<int64_t> mask = getTokens(e.target, getLanes(sums));
  return vector::ShuffleOp::create(e.b, e.loc, sums, sums, mask);
}

Value cpu::unzip(Emitter &e, Value sums) {
  SmallVector<int64_t> mask(getLanes(sums));
  for (auto [lane, token] :
       llvm::enumerate(getTokens(e.target, getLanes(sums))))
    mask[token] = lane;
  return vector::ShuffleOp::create(e.b, e.loc, sums, sums, mask);
}

Value cpu::addNeighbours(Emitter &e, Value a, Value b, Value sums) {
  return x86vector::DotBF16Op::create(e.b, e.loc, sums.getType(), sums, a, b);
}

Value cpu::addPairs(Emitter &e, ArrayRef<Value> pairs, Value pair, Value sums) {
  int64_t dotLanes = getLanes(pairs.front()) / 2;
  Type i32 = e.b.getI32Type();
  Value word = vector::ExtractOp::create(
      e.b, e.loc,
      vector::BitCastOp::create(e.b, e.loc, VectorType::get({1}, i32), pair),
      0);
  Value words = vector::BroadcastOp::create(
      e.b, e.loc, VectorType::get({dotLanes}, i32), word);
  Value factors =
      vector::BitCastOp::create(e.b, e.loc, pairs.front().getType(), words);
  if (pairs.size() == 1)
    return addNeighbours(e, pairs.front(), factors, sums);
  for (auto [number, operand] : llvm::enumerate(pairs)) {
    int64_t first = number * dotLanes;
    Value part = vector::ExtractStridedSliceOp::create(e.b, e.loc, sums, first,
                                                       dotLanes, 1);
    part = addNeighbours(e, operand, factors, part);
    sums =
        vector::InsertStridedSliceOp::create(e.b, e.loc, part, sums, first, 1);
  }
  return sums;
}

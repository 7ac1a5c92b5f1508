// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Vectors of bf16 as f32 without shuffles: the even lanes, then the odd ones.

#include "SplitLanes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

bool cpu::canSplit(Value tensor, Type sumType, int64_t width) {
  return getElementTypeOrSelf(tensor.getType()).isBF16() && sumType.isF32() &&
         width >= 4 && width % 2 == 0;
}

static Value splat(Emitter &e, VectorType type, int64_t value) {
  return arith::ConstantOp::create(
      e.b, e.loc,
      DenseElementsAttr::get(type,
                             e.b.getIntegerAttr(type.getElementType(), value)));
}

Value cpu::splitLanes(Emitter &e, Value x) {
  int64_t width = cast<VectorType>(x.getType()).getNumElements();
  auto words = VectorType::get(width / 2, e.b.getI32Type());
  auto floats = words.clone(e.b.getF32Type());
  Value pairs = vector::BitCastOp::create(e.b, e.loc, words, x);
  Value even = arith::ShLIOp::create(e.b, e.loc, pairs, splat(e, words, 16));
  Value odd = arith::AndIOp::create(e.b, e.loc, pairs,
                                    splat(e, words, int32_t(0xffff0000)));
  Value result = arith::ConstantOp::create(
      e.b, e.loc, e.b.getZeroAttr(VectorType::get(width, e.b.getF32Type())));
  auto insert = [&](Value half, int64_t first) {
    result = vector::InsertStridedSliceOp::create(
        e.b, e.loc, vector::BitCastOp::create(e.b, e.loc, floats, half), result,
        first, 1);
  };
  insert(even, 0);
  insert(odd, width / 2);
  return result;
}

Value cpu::joinLanes(Emitter &e, Value sums, Type type) {
  int64_t width = cast<VectorType>(sums.getType()).getNumElements();
  auto getHalf = [&](int64_t number) -> Value {
    Value half = vector::ExtractStridedSliceOp::create(
        e.b, e.loc, sums, number * width / 2, width / 2, 1);
    return e.convert(half, type);
  };
  Value even = getHalf(0), odd = getHalf(1);
  if (!type.isBF16())
    return vector::InterleaveOp::create(e.b, e.loc, even, odd);
  auto words = VectorType::get(width / 2, e.b.getI32Type());
  auto widen = [&](Value half) -> Value {
    Value bits = arith::BitcastOp::create(e.b, e.loc,
                                          words.clone(e.b.getI16Type()), half);
    return arith::ExtUIOp::create(e.b, e.loc, words, bits);
  };
  Value upper =
      arith::ShLIOp::create(e.b, e.loc, widen(odd), splat(e, words, 16));
  return vector::BitCastOp::create(
      e.b, e.loc, VectorType::get(width, type),
      arith::OrIOp::create(e.b, e.loc, widen(even), upper));
}

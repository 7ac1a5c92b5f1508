// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Positions of kernels in loops and tensors, and their arithmetic. Not
// affine.linearize_index and its inverse: the number that divides an index,
// which decides on vectors, is known here while the index is built.

#include "bsr/Codegen/Common/IndexBuilder.h"
#include "bsr/Analysis/Bounds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include <numeric>

using namespace mlir;
using namespace mlir::bsr;

Index Index::constant(int64_t offset) {
  return {Value(), offset, false, offset ? std::abs(offset) : 1 << 20};
}

Index Index::plus(int64_t more) const {
  return {base, offset + more, lanes, std::gcd(align, more)};
}

Value IndexBuilder::constant(int64_t value) {
  return arith::ConstantIndexOp::create(b, loc, value);
}

Value IndexBuilder::materialize(Index index) {
  if (!index.base)
    return constant(index.offset);
  if (!index.offset)
    return index.base;
  return arith::AddIOp::create(b, loc, index.base, constant(index.offset));
}

Index IndexBuilder::multiplyAdd(Index a, int64_t factor, Index c) {
  Index result{Value(), a.offset * factor + c.offset, c.lanes,
               std::gcd(a.align * factor, c.align)};
  if (a.base)
    result.base = factor == 1
                      ? a.base
                      : arith::MulIOp::create(b, loc, a.base, constant(factor));
  if (c.base)
    result.base = result.base
                      ? arith::AddIOp::create(b, loc, result.base, c.base)
                      : c.base;
  return result;
}

std::optional<Index> IndexBuilder::linearize(Index a, int64_t extent, Index c) {
  if (extent == 1)
    return a;
  if (a.lanes)
    return std::nullopt;
  return multiplyAdd(a, extent, c);
}

Value IndexBuilder::areZero(ArrayRef<Index> indices) {
  Value all;
  for (Index index : indices) {
    if (index.isConstant())
      continue;
    Value value = materialize(index);
    Value isZero = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                         value, constant(0));
    all = all ? arith::AndIOp::create(b, loc, all, isZero).getResult() : isZero;
  }
  return all;
}

SmallVector<Index> bsr::applyMap(AffineMap map, ArrayRef<Index> loops) {
  return llvm::map_to_vector(map.getResults(), [&](AffineExpr expr) {
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      return loops[dim.getPosition()];
    return Index::constant(cast<AffineConstantExpr>(expr).getValue());
  });
}

SmallVector<Index> bsr::getLoops(linalg::GenericOp op, unsigned result,
                                 ArrayRef<Index> at) {
  AffineMap map = op.getIndexingMapsArray()[op.getNumDpsInputs() + result];
  SmallVector<Index> loops(op.getNumLoops(), Index::constant(0));
  for (auto [expr, index] : llvm::zip_equal(map.getResults(), at))
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      loops[dim.getPosition()] = index;
  return loops;
}

std::optional<std::pair<Index, Index>> IndexBuilder::divide(Value value,
                                                            int64_t divisor) {
  Index none = Index::constant(0);
  if (auto sum = value.getDefiningOp<arith::AddIOp>()) {
    auto x = divide(sum.getLhs(), divisor), y = divide(sum.getRhs(), divisor);
    if (!x || !y)
      return std::nullopt;
    return std::make_pair(multiplyAdd(x->first, 1, y->first),
                          multiplyAdd(x->second, 1, y->second));
  }
  auto product = value.getDefiningOp<arith::MulIOp>();
  std::optional<int64_t> factor =
      product ? getConstantIntValue(product.getRhs()) : std::nullopt;
  if (factor && *factor % divisor == 0)
    return std::make_pair(
        multiplyAdd(Index::of(product.getLhs()), *factor / divisor, none),
        none);
  if (getLargest(value))
    return std::make_pair(none, Index::of(value));
  return std::nullopt;
}

std::pair<Index, Index> IndexBuilder::split(Index index, int64_t extent) {
  Index outer, inner;
  // What is below a divisor of the extent stays as it is, so that neighbours
  // are at constant distances.
  int64_t unit = extent;
  for (;; unit /= 2) {
    auto parts = index.base
                     ? divide(index.base, unit)
                     : std::make_pair(Index::constant(0), Index::constant(0));
    std::optional<int64_t> largest =
        parts ? getLargest(materialize(parts->second)) : std::nullopt;
    if (largest && index.offset >= 0 && *largest + index.offset % unit < unit) {
      outer = parts->first.plus(index.offset / unit);
      inner = parts->second.plus(index.offset % unit);
      break;
    }
    if (unit % 2 || unit == 2) {
      unit = 1;
      outer = Index::of(materialize(index));
      inner = Index::constant(0);
      break;
    }
  }
  if (unit != extent) {
    Value linear = materialize(outer), size = constant(extent / unit);
    outer = Index::of(arith::DivUIOp::create(b, loc, linear, size));
    inner = multiplyAdd(Index::of(arith::RemUIOp::create(b, loc, linear, size)),
                        unit, inner);
  }
  inner.lanes = index.lanes;
  inner.align = std::gcd(index.align, extent);
  return {outer, inner};
}

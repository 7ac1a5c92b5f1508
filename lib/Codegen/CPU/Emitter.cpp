// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Positions, loops, vectors, and what is loaded and stored.

#include "bsr/Codegen/CPU/Emitter.h"
#include "bsr/Analysis/Bounds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <numeric>

using namespace mlir;
using namespace mlir::bsr;

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

Index Index::constant(int64_t offset) {
  return {Value(), offset, false, offset ? std::abs(offset) : 1 << 20};
}

Index Index::plus(int64_t more) const {
  return {base, offset + more, lanes, std::gcd(align, more)};
}

Value Emitter::constant(int64_t value) {
  return arith::ConstantIndexOp::create(b, loc, value);
}

Value Emitter::materialize(Index index) {
  if (!index.base)
    return constant(index.offset);
  if (!index.offset)
    return index.base;
  return arith::AddIOp::create(b, loc, index.base, constant(index.offset));
}

Index Emitter::multiplyAdd(Index a, int64_t factor, Index c) {
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

std::optional<Index> Emitter::linearize(Index a, int64_t extent, Index c) {
  if (extent == 1)
    return a;
  if (a.lanes)
    return std::nullopt;
  return multiplyAdd(a, extent, c);
}

Value Emitter::areZero(ArrayRef<Index> indices) {
  Value all;
  for (Index index : indices) {
    if (index.isConstant())
      continue;
    Value isZero = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                         materialize(index), constant(0));
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

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

void Emitter::scope(llvm::function_ref<void()> body) {
  OpBuilder::InsertionGuard guard(b);
  std::map<Key, Value> outer = memory;
  body();
  memory = std::move(outer);
}

SmallVector<Value> Emitter::loop(Value low, Value high, int64_t step,
                                 ValueRange inits, Body body) {
  auto loop = scf::ForOp::create(b, loc, low, high, constant(step), inits);
  scope([&] {
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> next =
        body(loop.getInductionVar(), loop.getRegionIterArgs());
    if (!inits.empty())
      scf::YieldOp::create(b, loc, next);
  });
  return SmallVector<Value>(loop.getResults());
}

SmallVector<Value>
Emitter::loop(int64_t extent, ValueRange inits,
              llvm::function_ref<SmallVector<Value>(Index, ValueRange)> body) {
  if (extent == 1) {
    SmallVector<Value> results;
    results = body(Index::constant(0), inits);
    return results;
  }
  return loop(constant(0), constant(extent), 1, inits,
              [&](Value iv, ValueRange carried) {
                return body(Index::of(iv), carried);
              });
}

SmallVector<Value> Emitter::nest(
    ArrayRef<int64_t> extents, ValueRange inits,
    llvm::function_ref<SmallVector<Value>(ArrayRef<Index>, ValueRange)> body) {
  SmallVector<Index> ivs;
  std::function<SmallVector<Value>(ValueRange)> recurse =
      [&](ValueRange carried) -> SmallVector<Value> {
    if (ivs.size() == extents.size())
      return body(ivs, carried);
    return loop(extents[ivs.size()], carried, [&](Index iv, ValueRange inner) {
      ivs.push_back(iv);
      SmallVector<Value> next = recurse(inner);
      ivs.pop_back();
      return next;
    });
  };
  return recurse(inits);
}

void Emitter::forLanes(Value low, int64_t extent, int64_t lanes,
                       llvm::function_ref<void(Index)> body) {
  int64_t outerWidth = width;
  int64_t done = extent - extent % lanes;
  auto chunk = [&](Value base, int64_t offset, int64_t size) {
    width = size;
    scope([&] {
      Index index = Index::of(base, /*lanes=*/size > 1, size);
      index.offset = offset;
      body(index);
    });
  };
  if (done == lanes) {
    chunk(low, 0, lanes);
  } else if (done > 0) {
    loop(done / lanes, {}, [&](Index number, ValueRange) {
      chunk(materialize(multiplyAdd(number, lanes, Index::of(low))), 0, lanes);
      return SmallVector<Value>();
    });
  }
  for (int64_t size = llvm::bit_floor<uint64_t>(lanes); size; size /= 2) {
    if (extent - done < size)
      continue;
    chunk(low, done, size);
    done += size;
  }
  width = outerWidth;
}

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

Value Emitter::broadcast(Value value) {
  if (width == 1 || isa<VectorType>(value.getType()))
    return value;
  return vector::BroadcastOp::create(
      b, loc, VectorType::get({width}, value.getType()), value);
}

Value Emitter::convert(Value value, Type type) {
  Type from = getElementTypeOrSelf(value.getType());
  if (from == type)
    return value;
  Type to = type;
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    to = vector.clone(type);
  if (from.getIntOrFloatBitWidth() < type.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(b, loc, to, value);
  if (from.getIntOrFloatBitWidth() > type.getIntOrFloatBitWidth())
    return arith::TruncFOp::create(b, loc, to, value);
  // f16 and bf16 meet in f32.
  return convert(convert(value, b.getF32Type()), type);
}

RankedTensorType bsr::getPanelType(RankedTensorType tensor, int64_t panel) {
  // A way of a first-level cache, and the quarter of it that a block may take.
  constexpr int64_t way = 4096, share = way / 4;
  ArrayRef<int64_t> shape = tensor.getShape();
  int64_t rows = shape[shape.size() - 2];
  int64_t rowBytes = panel * tensor.getElementTypeBitWidth() / 8;
  // One row more: what products read of a row, panel after panel, lies in all
  // sets of the cache, not in four of them.
  int64_t padding = share / rowBytes + 1;
  if (rows * rowBytes % way == 0 && rows >= 16 * padding)
    rows += padding;
  SmallVector<int64_t> result(shape.drop_back(2));
  result.append({shape.back() / panel, rows, panel});
  return tensor.clone(result);
}

std::optional<std::pair<Index, Index>> Emitter::divide(Value value,
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

std::pair<Index, Index> Emitter::split(Index index, int64_t extent) {
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

SmallVector<Index> Emitter::place(Value memref, ArrayRef<Index> at) {
  auto type = cast<MemRefType>(memref.getType());
  SmallVector<Index> result(at);
  if (type.getRank() == static_cast<int64_t>(at.size()))
    return result;
  auto [number, within] = split(result.pop_back_val(), type.getShape().back());
  result.insert(result.end() - 1, number);
  result.push_back(within);
  return result;
}

bool Emitter::areAdjacent(Value memref, ArrayRef<Index> at) const {
  auto type = cast<MemRefType>(memref.getType());
  // A vector of i1 is packed, a buffer of i1 is not.
  if (type.getElementType().isInteger(1))
    return false;
  bool isCut = type.getRank() != static_cast<int64_t>(at.size());
  ArrayRef<int64_t> shape = type.getShape();
  if (isCut && at.back().lanes)
    // Lanes stay within a panel.
    return llvm::none_of(at.drop_back(), [](Index i) { return i.lanes; }) &&
           shape.back() % width == 0 && at.back().align % width == 0;
  if (isCut)
    return false;
  if (llvm::count_if(at, [](Index i) { return i.lanes; }) != 1)
    return false;
  SmallVector<int64_t> strides = type.getStridesAndOffset().first;
  return llvm::all_of(llvm::zip_equal(at, strides), [](auto it) {
    auto [index, stride] = it;
    return !index.lanes || stride == 1;
  });
}

static bool hasLanes(ArrayRef<Index> at) {
  return llvm::any_of(at, [](Index i) { return i.lanes; });
}

/// `at` without lanes, at lane number `lane`.
static SmallVector<Index> atLane(ArrayRef<Index> at, int64_t lane) {
  return llvm::map_to_vector(
      at, [&](Index i) { return i.lanes ? i.scalar().plus(lane) : i; });
}

Value Emitter::load(Value memref, ArrayRef<Index> at) {
  Type type = cast<MemRefType>(memref.getType()).getElementType();
  if (lockstep && *lockstep != at)
    readElsewhere.insert(memref);
  auto indices = [&](ArrayRef<Index> at) {
    return llvm::map_to_vector(place(memref, at),
                               [&](Index i) { return materialize(i); });
  };
  if (!hasLanes(at))
    return memref::LoadOp::create(b, loc, memref, indices(at));
  if (areAdjacent(memref, at))
    return vector::LoadOp::create(b, loc, VectorType::get({width}, type),
                                  memref, indices(at));
  SmallVector<Value> elements;
  for (int64_t lane = 0; lane != width; ++lane)
    elements.push_back(
        memref::LoadOp::create(b, loc, memref, indices(atLane(at, lane))));
  return vector::FromElementsOp::create(b, loc, VectorType::get({width}, type),
                                        elements);
}

void Emitter::store(Value value, Value memref, ArrayRef<Index> at) {
  auto indices = [&](ArrayRef<Index> at) {
    return llvm::map_to_vector(place(memref, at),
                               [&](Index i) { return materialize(i); });
  };
  if (!hasLanes(at)) {
    memref::StoreOp::create(b, loc, value, memref, indices(at));
    return;
  }
  value = broadcast(value);
  if (areAdjacent(memref, at)) {
    vector::StoreOp::create(b, loc, value, memref, indices(at));
    return;
  }
  for (int64_t lane = 0; lane != width; ++lane) {
    Value element = vector::ExtractOp::create(b, loc, value, lane);
    memref::StoreOp::create(b, loc, element, memref, indices(atLane(at, lane)));
  }
}

Value Emitter::readPerLane(Value tensor, ArrayRef<Index> at) {
  SmallVector<Value> elements;
  int64_t lanes = width;
  for (int64_t lane = 0; lane != lanes; ++lane) {
    width = 1;
    elements.push_back(read(tensor, atLane(at, lane)));
    width = lanes;
  }
  return vector::FromElementsOp::create(
      b, loc, VectorType::get({lanes}, elements.front().getType()), elements);
}

Value Emitter::allocate(ArrayRef<int64_t> shape, Type type) {
  return memref::AllocaOp::create(b, loc, MemRefType::get(shape, type),
                                  b.getI64IntegerAttr(lineBytes));
}

void Emitter::prefetch(Value tensor, ArrayRef<Index> at, int64_t count) {
  Value memref = getBuffer(tensor);
  if (!memref) {
    Operation *op = tensor.getDefiningOp();
    if (!isa_and_nonnull<tensor::ExtractSliceOp, tensor::ExpandShapeOp,
                         tensor::CollapseShapeOp>(op))
      return;
    if (auto source = getSource(op, at))
      prefetch(op->getOperand(0), *source, count);
    return;
  }
  int64_t bits = getElementTypeOrSelf(memref.getType()).getIntOrFloatBitWidth();
  int64_t step = std::max<int64_t>(1, 8 * lineBytes / bits);
  for (int64_t number = 0; number < count; number += step) {
    SmallVector<Index> from(at);
    from.back() = from.back().plus(number);
    SmallVector<Value> indices = llvm::map_to_vector(
        place(memref, from), [&](Index i) { return materialize(i); });
    memref::PrefetchOp::create(b, loc, memref, indices, /*isWrite=*/false,
                               /*localityHint=*/3, /*isDataCache=*/true);
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Epilogues on the sums of a product while they are in registers.

#include "bsr/Codegen/GPU/Epilogue/Epilogue.h"
#include "bsr/Codegen/Common/ChainPoints.h"
#include "bsr/Codegen/Common/Combine.h"
#include "bsr/Codegen/GPU/Core/GPUEvaluator.h"
#include "bsr/Codegen/GPU/Core/TensorCores.h"
#include "bsr/Codegen/GPU/Reductions/Reductions.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// Operations on an element beyond which an epilogue is a loop over rows: the
/// instructions of many copies would not fit their cache, and moving sums costs
/// little beside.
static constexpr int64_t fewOperations = 16;
/// Operations of a function such as the exponential.
static constexpr int64_t functionLength = 12;

Epilogue::Epilogue(const Chain &chain, const ResultSpace &space)
    : chain(&chain), space(space) {
  for (const Chain::Root &root : chain.getRoots())
    if (root.isTotal)
      llvm::append_range(totals, root.op->getResults());
}

/// For each loop of `root` the dimension of the product that it goes over; -1
/// for one of a single iteration.
static SmallVector<int64_t> getDims(const Chain &chain,
                                    const Chain::Root &root) {
  SmallVector<int64_t> dims(root.shared);
  for (auto [row, dim] :
       llvm::zip_equal(chain.getRows(root), chain.getProductRows()))
    dims[row] = dim;
  return dims;
}

/// True if the elements of `result`, which `root` makes, lie in memory as those
/// of the product do, in vectors that can be stored.
static bool liesLikeProduct(const Chain &chain, const Chain::Root &root,
                            OpResult result) {
  auto product = cast<RankedTensorType>(chain.getProduct().getType());
  auto type = cast<RankedTensorType>(result.getType());
  if (type.getShape() != product.getShape() ||
      !type.getElementType().isIntOrFloat() ||
      type.getElementTypeBitWidth() < 8)
    return false;
  SmallVector<int64_t> dims = getDims(chain, root);
  AffineMap map = root.op.getIndexingMapMatchingResult(result);
  return llvm::all_of(llvm::enumerate(map.getResults()), [&](auto it) {
    auto loop = dyn_cast<AffineDimExpr>(it.value());
    return type.getDimSize(it.index()) == 1 ||
           (loop &&
            dims[loop.getPosition()] == static_cast<int64_t>(it.index()));
  });
}

std::optional<Epilogue> Epilogue::match(const Chain &chain,
                                        const ResultSpace &space) {
  Epilogue epilogue(chain, space);
  if (!accepts(epilogue.getType()))
    return std::nullopt;
  // Sums over tokens are of what the rows of fragments are.
  SmallVector<int64_t> rows = chain.getProductRows();
  SmallVector<int64_t> kept =
      llvm::filter_to_vector(space.dims[space.row], [&](int64_t dim) {
        return epilogue.getType().getDimSize(dim) != 1;
      });
  if (epilogue.hasTotals() && (!space.warpColumns || rows != kept))
    return std::nullopt;
  for (const Chain::Root &root : chain.getRoots())
    for (OpResult result : root.op->getResults())
      if (root.isTotal ? !getElementTypeOrSelf(result.getType()).isF32()
                       : !liesLikeProduct(chain, root, result))
        return std::nullopt;
  return epilogue;
}

bool Epilogue::isLong() const {
  int64_t count = 0;
  for (auto op :
       chain->getProduct().getParentBlock()->getOps<linalg::GenericOp>())
    for (Operation &inner : op.getBody()->without_terminator())
      count += isa<math::MathDialect>(inner.getDialect()) ? functionLength : 1;
  return count > fewOperations;
}

SmallVector<int64_t> Epilogue::getSizes() const {
  return llvm::map_to_vector(space.dims, [&](ArrayRef<int64_t> dims) {
    int64_t size = 1;
    for (int64_t dim : dims)
      size *= getType().getDimSize(dim);
    return size;
  });
}

/// The extents of the partial sums of a total: one for each warp along the
/// columns and for each point of the coordinates that are no rows; the rows are
/// last.
SmallVector<int64_t> Epilogue::getPartialSizes() const {
  SmallVector<int64_t> sizes = getSizes();
  int64_t rows = sizes[space.row];
  sizes.back() = llvm::divideCeil(sizes.back(), space.warpColumns);
  sizes.erase(sizes.begin() + space.row);
  sizes.push_back(rows);
  return sizes;
}

SmallVector<MemRefType> Epilogue::getScratch() const {
  if (!hasTotals())
    return {};
  SmallVector<int64_t> sizes = getPartialSizes();
  int64_t count = 1;
  for (int64_t size : ArrayRef(sizes).drop_back())
    count *= size;
  return llvm::map_to_vector(totals, [&](OpResult total) {
    return MemRefType::get({count, sizes.back()},
                           getElementTypeOrSelf(total.getType()));
  });
}

void Epilogue::begin(OpBuilder &b, KernelBody &body, ValueRange memory) {
  kernel = &body;
  scratch = memory;
  SmallVector<int64_t> sizes = getSizes();
  auto store = [&](Value result) {
    if (Value buffer = kernel->outputs.lookup(result))
      stored[result] =
          createRows(b, kernel->loc, buffer, ArrayRef(sizes).drop_back(),
                     sizes.back(), length)
              .vectors;
  };
  store(chain->getProduct());
  for (const Chain::Root &root : chain->getRoots())
    if (!root.isTotal)
      llvm::for_each(root.op->getResults(), store);
  for (auto [total, buffer] : llvm::zip(totals, scratch))
    partials[total] = createView(b, kernel->loc, buffer, getPartialSizes());
}

/// What a lane does.
class Epilogue::Lane {
public:
  Lane(const Epilogue &epilogue, BlockBuilder &b)
      : epilogue(epilogue), chain(*epilogue.chain), b(b), e(b.b, b.loc) {
    e.width = length;
    for (auto [argument, buffer] : epilogue.kernel->inputs)
      e.setBuffer(argument, buffer);
  }

  /// Takes a row of fragments, `row` of those of `warp`.
  void takeRow(const WarpSums &warp, Value row, ValueRange sums);
  /// Evaluates what follows `sums` at the coordinates `at`, the first column
  /// last, and adds to `totals` where `isInside` holds. Beyond the last row and
  /// column, `clamped` are coordinates inside.
  void take(ArrayRef<Value> at, ArrayRef<Value> clamped, ValueRange sums,
            Value isInside, SmallVector<Value> &totals);
  /// Stores what was evaluated, after everything that it was evaluated from.
  void store();

private:
  struct Store {
    Value vector, vectors;
    SmallVector<Value> at;
    Value isInside;
  };
  SmallVector<Index> getPlace(ArrayRef<Value> at);
  SmallVector<Value> exchange(ValueRange first, ValueRange second);
  Value addLanes(const SumLayout &layout, OpResult total, Value sums);
  Value both(Value x, Value y) { return x && y ? b.bitAnd(x, y) : x ? x : y; }

  const Epilogue &epilogue;
  const Chain &chain;
  BlockBuilder &b;
  GPUEvaluator e;
  SmallVector<Store> stores;
  /// Vectors of sums that were taken.
  size_t taken = 0;
};

/// The coordinates `at` as indices of the result of the product.
SmallVector<Index> Epilogue::Lane::getPlace(ArrayRef<Value> at) {
  RankedTensorType type = epilogue.getType();
  SmallVector<Index> indices(type.getRank(), Index::constant(0));
  for (auto [number, dims] : llvm::zip_equal(at, epilogue.space.dims)) {
    Value left = number;
    SmallVector<int64_t> large = llvm::filter_to_vector(
        dims, [&](int64_t dim) { return type.getDimSize(dim) != 1; });
    for (int64_t dim : llvm::reverse(large)) {
      bool isFirst = dim == large.front();
      Value digit = isFirst ? left : b.rem(left, type.getDimSize(dim));
      if (!isFirst)
        left = b.div(left, type.getDimSize(dim));
      indices[dim] = Index::of(
          arith::IndexCastOp::create(b.b, b.loc, b.b.getIndexType(), digit));
    }
  }
  indices.back().lanes = true;
  indices.back().align = length;
  return indices;
}

/// Of two neighbouring lanes, which have two columns of two fragments each, one
/// gets four columns of the first, and the other one of the second.
SmallVector<Value> Epilogue::Lane::exchange(ValueRange first,
                                            ValueRange second) {
  Value isSecond = b.equal(b.rem(b.lane, 2), b.constant(1));
  SmallVector<Value> low, high;
  for (auto [left, right] : llvm::zip_equal(first, second)) {
    Value other = b.exchange(b.select(isSecond, left, right), 1);
    low.push_back(b.select(isSecond, other, left));
    high.push_back(b.select(isSecond, right, other));
  }
  llvm::append_range(low, high);
  return low;
}

void Epilogue::Lane::take(ArrayRef<Value> at, ArrayRef<Value> clamped,
                          ValueRange sums, Value isInside,
                          SmallVector<Value> &totals) {
  SmallVector<Index> indices = getPlace(clamped), shared(indices), rows;
  for (int64_t dim : chain.getProductRows()) {
    rows.push_back(indices[dim]);
    shared[dim] = Index::constant(0);
  }
  Value product = chain.getProduct();
  Value vector = vector::FromElementsOp::create(
      b.b, b.loc, VectorType::get(length, b.b.getF32Type()), sums);
  e.remember(product, indices,
             e.convert(vector, epilogue.getType().getElementType()));
  SmallVector<Value> where(at.drop_back());
  where.append({b.div(at.back(), length), b.constant(0)});
  auto store = [&](Value result, ArrayRef<Index> indices) {
    if (Value vectors = epilogue.stored.lookup(result))
      stores.push_back(
          {e.broadcast(e.read(result, indices)), vectors, where, isInside});
  };
  store(product, indices);
  auto *total = totals.begin();
  for (const Chain::Root &root : chain.getRoots()) {
    SmallVector<Index> point = getPoint(chain, root, shared, rows);
    if (!root.isTotal) {
      for (OpResult result : root.op->getResults())
        store(result, bsr::getPlace(result, point));
      continue;
    }
    SmallVector<Value> sums(total, total + root.op->getNumResults());
    for (Value next : e.evaluate(root.op, point, sums)) {
      next = e.broadcast(next);
      *total = isInside ? b.select(isInside, next, *total) : next;
      ++total;
    }
  }
}

/// Combines `sums`, vectors of the lanes of a row.
Value Epilogue::Lane::addLanes(const SumLayout &layout, OpResult total,
                               Value sums) {
  SmallVector<Value> elements;
  for (int64_t i = 0; i != length; ++i)
    elements.push_back(vector::ExtractOp::create(b.b, b.loc, sums, i));
  Value sum = combine(e, total, combine(e, total, elements[0], elements[1]),
                      combine(e, total, elements[2], elements[3]));
  for (int64_t mask = 1; mask != layout.rowLanes; mask *= 2)
    sum = combine(e, total, sum, b.exchange(sum, mask));
  return sum;
}

void Epilogue::Lane::takeRow(const WarpSums &warp, Value row, ValueRange sums) {
  const ResultSpace &space = epilogue.space;
  SmallVector<int64_t> sizes = epilogue.getSizes();
  const SumLayout &layout = warp.layout;
  SmallVector<Value> at(warp.at);
  Value within =
      b.multiplyAdd(b.div(row, layout.rowsTogether), layout.rowDistance,
                    b.rem(row, layout.rowsTogether));
  at[space.row] = b.add(at[space.row], within);
  Value number = at[space.row], isRow;
  SmallVector<Value> clamped(at);
  if (warp.areRowsRagged) {
    isRow = b.less(number, b.constant(sizes[space.row]));
    clamped[space.row] = b.min(number, b.constant(sizes[space.row] - 1));
  }
  SmallVector<Value> totals = llvm::map_to_vector(
      epilogue.totals, [&](OpResult total) { return createNeutral(e, total); });
  // Two fragments are four columns of each of four lanes, too.
  Value four = b.rem(b.lane, layout.rowLanes);
  if (layout.areFragments)
    four =
        b.multiplyAdd(b.rem(b.lane, 2), fragmentCols / length, b.div(four, 2));
  at.push_back({});
  clamped.push_back({});
  for (int64_t first = 0; first != int64_t(sums.size()); first += length) {
    Value column = b.add(warp.column, first * layout.rowLanes);
    column = b.mul(b.add(four, b.div(column, length)), length);
    Value isColumn;
    at.back() = clamped.back() = column;
    if (warp.areColumnsRagged) {
      isColumn = b.less(column, b.constant(sizes.back()));
      clamped.back() = b.min(column, b.constant(sizes.back() - length));
    }
    SmallVector<Value> columns(sums.slice(first, length));
    if (layout.areFragments)
      columns = exchange(sums.slice(first, 2), sums.slice(first + 2, 2));
    take(at, clamped, columns, both(isRow, isColumn), totals);
    // Registers have room for few vectors beside the sums: those that were
    // taken are no longer kept, but where a loop goes through all rows.
    constexpr size_t fewStores = 8;
    taken += epilogue.isLong() ? 0 : 1;
    if (stores.size() >= taken + fewStores)
      store();
  }
  // Of the lanes of a row, the first one stores its partial sum; warps beyond
  // the last column have none.
  Value isFirst, isPartial;
  if (warp.areColumnsRagged && epilogue.hasTotals())
    isPartial = b.less(warp.column, b.constant(sizes.back()));
  for (auto [total, sum] : llvm::zip_equal(epilogue.totals, totals)) {
    SmallVector<Value> partial(warp.at);
    partial.erase(partial.begin() + space.row);
    partial.append({warp.warpNumber, number});
    if (!isFirst)
      isFirst = b.equal(b.rem(b.lane, layout.rowLanes), b.constant(0));
    stores.push_back({addLanes(layout, total, sum),
                      epilogue.partials.lookup(total), std::move(partial),
                      both(isFirst, both(isRow, isPartial))});
  }
}

void Epilogue::Lane::store() {
  // Those of one condition, which follow each other, are under one branch.
  for (auto *first = stores.begin(); first != stores.end();) {
    auto *last = std::find_if(first, stores.end(), [&](const Store &other) {
      return other.isInside != first->isInside;
    });
    auto body = [&] {
      for (const Store &store : llvm::make_range(first, last))
        b.store(store.vector, store.vectors, store.at);
    };
    if (first->isInside)
      b.when(first->isInside, body);
    else
      body();
    first = last;
  }
  stores.clear();
  epilogue.hasFailed |= e.hasFailed;
}

void Epilogue::emit(BlockBuilder &b, const WarpSums &warp) const {
  ValueRange sums = warp.sums;
  int64_t perRow = sums.size() / warp.numRows;
  if (!isLong() || warp.numRows == 1) {
    Lane lane(*this, b);
    for (int64_t row = 0; row != warp.numRows; ++row)
      lane.takeRow(warp, b.constant(row), sums.slice(row * perRow, perRow));
    return lane.store();
  }
  // Registers have no numbers: rows move up instead.
  b.loop(b.constant(0), b.constant(warp.numRows), 1, sums,
         [&](Value row, ValueRange carried) {
           Lane lane(*this, b);
           lane.takeRow(warp, row, carried.take_front(perRow));
           lane.store();
           SmallVector<Value> next(carried.drop_front(perRow));
           llvm::append_range(next, carried.take_front(perRow));
           return next;
         });
}

void Epilogue::emit(BlockBuilder &b, Value number, ValueRange sums) const {
  Lane lane(*this, b);
  SmallVector<Value> at{b.mul(number, length)}, totals;
  lane.take(at, at, sums, /*isInside=*/Value(), totals);
  lane.store();
}

LogicalResult Epilogue::end(OpBuilder &b) const {
  GPUEvaluator e(b, kernel->loc);
  for (auto [argument, buffer] : kernel->inputs)
    e.setBuffer(argument, buffer);
  ValueRange memory = scratch;
  for (const Chain::Root &root : chain->getRoots()) {
    if (!root.isTotal)
      continue;
    unsigned count = root.op->getNumResults();
    emitSumOfPartials(e, *chain, root, memory.take_front(count),
                      kernel->outputs);
    memory = memory.drop_front(count);
  }
  return failure(hasFailed || e.hasFailed);
}

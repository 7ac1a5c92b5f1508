// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for chains of element-wise operations and reductions.

#include "SparseKernels.h"
#include "bsr/Codegen/CPU/Chains.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;

static Operation *getCombiner(OpResult sum) {
  return bsr::getCombiner(cast<linalg::GenericOp>(sum.getOwner()),
                          sum.getResultNumber());
}

/// What changes nothing when combined, in all lanes.
static Value createNeutral(Emitter &e, OpResult sum) {
  Operation *combiner = getCombiner(sum);
  TypedAttr neutral = *arith::getNeutralElement(combiner);
  // Adding a negative zero is no operation, adding a positive one is.
  if (isa<arith::AddFOp>(combiner))
    neutral = e.b.getFloatAttr(neutral.getType(), -0.0);
  return e.broadcast(arith::ConstantOp::create(e.b, e.loc, neutral));
}

static Value combine(Emitter &e, OpResult sum, Value a, Value b) {
  return vector::makeArithReduction(
      e.b, e.loc, *linalg::getCombinerOpKind(getCombiner(sum)), a, b);
}

/// The lanes of `value`, combined.
static Value combineLanes(Emitter &e, OpResult sum, Value value) {
  if (!isa<VectorType>(value.getType()))
    return value;
  return vector::ReductionOp::create(
      e.b, e.loc, *linalg::getCombinerOpKind(getCombiner(sum)), value,
      arith::FastMathFlags::none);
}

/// Where the element of `result` lies that its operation makes at `point`.
static SmallVector<Index> getPlace(OpResult result, ArrayRef<Index> point) {
  auto op = cast<linalg::GenericOp>(result.getOwner());
  return applyMap(op.getIndexingMapMatchingResult(result), point);
}

static Value readInit(Emitter &e, OpResult sum, ArrayRef<Index> place) {
  auto op = cast<linalg::GenericOp>(sum.getOwner());
  return e.broadcast(e.read(op.getDpsInits()[sum.getResultNumber()], place));
}

/// Takes `sums` over `extents` and the inits `totals`, in vectors along the
/// last extent: each chunk of it in vectors first, then across lanes.
static SmallVector<Value> emitSums(
    Emitter &e, ArrayRef<int64_t> extents, ArrayRef<OpResult> sums,
    SmallVector<Value> totals,
    llvm::function_ref<SmallVector<Value>(ArrayRef<Index>, ValueRange)> step) {
  int64_t extent = extents.back(), done = 0;
  for (int64_t size = 2 * e.target.lanes; size; size /= 2) {
    int64_t chunks = (extent - done) / size;
    if (!chunks)
      continue;
    e.width = size;
    SmallVector<Value> neutral = llvm::map_to_vector(
        sums, [&](OpResult sum) { return createNeutral(e, sum); });
    SmallVector<Value> partial = e.nest(
        extents.drop_back(), neutral,
        [&](ArrayRef<Index> rows, ValueRange outer) {
          return e.loop(chunks, outer, [&](Index chunk, ValueRange inner) {
            SmallVector<Index> at(rows);
            at.push_back(e.multiplyAdd(chunk, size, Index::constant(done)));
            at.back().lanes = size > 1;
            return step(at, inner);
          });
        });
    e.width = 1;
    for (auto [total, sum, part] : llvm::zip_equal(totals, sums, partial))
      total = combine(e, sum, combineLanes(e, sum, part), total);
    done += chunks * size;
  }
  return totals;
}

/// Emits `body` for every point of `extents` and every piece of `extent` lanes:
/// the point with the number of the piece, and the lanes. Pieces of `size`
/// lanes run in parallel; the rest is divided into powers of two.
static void
emitPieces(Emitter &e, ArrayRef<int64_t> extents, int64_t extent, int64_t size,
           llvm::function_ref<void(SmallVector<Index>, Index)> body) {
  int64_t whole = extent / size;
  SmallVector<int64_t> counts(extents);
  counts.push_back(whole);
  if (whole)
    emitParallel(e, counts, [&](ArrayRef<Index> at) {
      Index low = e.multiplyAdd(at.back(), size, Index::constant(0));
      e.forLanes(e.materialize(low), size, size,
                 [&](Index lane) { body(SmallVector<Index>(at), lane); });
    });
  if (extent % size)
    emitParallel(e, extents, [&](ArrayRef<Index> at) {
      int64_t number = whole;
      Value low = e.constant(whole * size);
      e.forLanes(low, extent % size, size, [&](Index lane) {
        SmallVector<Index> point(at);
        point.push_back(Index::constant(number++));
        body(std::move(point), lane);
      });
    });
}

static int64_t getPieceSize(CPUTarget target) {
  return target.lanes * target.tileVectors();
}

SmallVector<int64_t> Chain::getParts(CPUTarget target) const {
  SmallVector<int64_t> parts(extents);
  parts.erase(parts.begin() + lanes);
  int64_t size = getPieceSize(target);
  parts.push_back(extents[lanes] / size +
                  llvm::popcount<uint64_t>(extents[lanes] % size));
  return parts;
}

SmallVector<OpResult> Chain::getTotals(ArrayRef<const Root *> among) const {
  SmallVector<OpResult> totals;
  for (const Root *root : among)
    if (root->isTotal)
      llvm::append_range(totals, root->op->getResults());
  return totals;
}

SmallVector<MemRefType> Chain::getScratch(CPUTarget target) const {
  SmallVector<MemRefType> types;
  for (const Nest &nest : getNests()) {
    for (OpResult total : getTotals(nest.roots)) {
      SmallVector<int64_t> shape = getParts(target);
      llvm::append_range(shape, nest.extents);
      types.push_back(
          MemRefType::get(shape, getElementTypeOrSelf(total.getType())));
    }
  }
  return types;
}

/// The loops of `root` where a work item is at `rows`; without rows, at the
/// first of each.
SmallVector<Index> Chain::getPoint(const Root &root, const Item &item,
                                   ArrayRef<Index> rows) const {
  SmallVector<Index> point(root.op.getNumLoops(), Index::constant(0));
  for (int64_t loop : root.order)
    if (root.shared[loop] >= 0)
      point[loop] = item.at[root.shared[loop]];
  for (auto [loop, row] : llvm::zip(getRows(root), rows))
    point[loop] = row;
  return point;
}

/// One step of all sums, and the elements and parts of totals of the same row.
SmallVector<Value> Chain::emitRow(Emitter &e, const Nest &nest,
                                  const Item &item, ArrayRef<Index> rows,
                                  ValueRange accumulators,
                                  const DenseMap<Value, Value> &outputs,
                                  const DenseMap<Value, Value> &parts) const {
  SmallVector<Value> next;
  SmallVector<std::tuple<Value, Value, SmallVector<Index>>> stores;
  for (const Root *root : nest.roots) {
    SmallVector<Index> point = getPoint(*root, item, rows);
    if (root->isSum()) {
      unsigned count = root->op->getNumResults();
      for (Value value :
           e.evaluate(root->op, point, accumulators.take_front(count)))
        next.push_back(e.broadcast(value));
      accumulators = accumulators.drop_front(count);
      continue;
    }
    if (root->isTotal) {
      SmallVector<Value> neutral =
          llvm::map_to_vector(root->op->getResults(), [&](OpResult total) {
            return createNeutral(e, total);
          });
      SmallVector<Value> elements = e.evaluate(root->op, point, neutral);
      SmallVector<Index> place(item.part);
      llvm::append_range(place, rows);
      for (auto [total, part] :
           llvm::zip_equal(root->op->getResults(), elements))
        stores.push_back({combineLanes(e, total, e.broadcast(part)),
                          parts.lookup(total), place});
      continue;
    }
    for (OpResult result : root->op->getResults()) {
      Value output = outputs.lookup(result);
      if (!output)
        continue;
      SmallVector<Index> place = getPlace(result, point);
      stores.push_back({e.read(result, place), output, place});
    }
  }
  for (const auto &[value, memref, place] : stores)
    e.store(value, memref, place);
  return next;
}

void Chain::emitNest(Emitter &e, const Nest &nest, const Item &item,
                     const DenseMap<Value, Value> &outputs,
                     const DenseMap<Value, Value> &parts) const {
  SmallVector<OpResult> sums;
  SmallVector<SmallVector<Index>> places;
  SmallVector<Value> totals;
  for (const Root *root : nest.roots) {
    if (!root->isSum())
      continue;
    for (OpResult sum : root->op->getResults()) {
      sums.push_back(sum);
      places.push_back(getPlace(sum, getPoint(*root, item, {})));
      totals.push_back(readInit(e, sum, places.back()));
    }
  }

  auto step = [&](ArrayRef<Index> rows, ValueRange accumulators) {
    return emitRow(e, nest, item, rows, accumulators, outputs, parts);
  };
  if (lanes >= 0 || nest.extents.empty())
    totals = e.nest(nest.extents, totals, step);
  else
    totals = emitSums(e, nest.extents, sums, totals, step);
  for (auto [sum, place, total] : llvm::zip_equal(sums, places, totals)) {
    e.remember(sum, place, total);
    if (Value output = outputs.lookup(sum))
      e.store(total, output, place);
  }
  for (const Root *root : nest.roots)
    if (!root->isReduction())
      for (OpResult result : root->op->getResults())
        if (Value output = outputs.lookup(result))
          e.setBuffer(result, output);
}

/// Emits the totals of `nest` from the work items' parts: lanes along the last
/// row, one work item after the other.
void Chain::emitTotals(Emitter &e, const Nest &nest,
                       const DenseMap<Value, Value> &outputs,
                       const DenseMap<Value, Value> &parts) const {
  SmallVector<OpResult> totals = getTotals(nest.roots);
  if (totals.empty())
    return;
  auto emitRows = [&](ArrayRef<Index> rows) {
    SmallVector<SmallVector<Index>> places;
    SmallVector<Value> values;
    for (const Root *root : nest.roots) {
      if (!root->isTotal)
        continue;
      SmallVector<Index> point(root->op.getNumLoops(), Index::constant(0));
      for (auto [loop, row] : llvm::zip_equal(getRows(*root), rows))
        point[loop] = row;
      for (OpResult total : root->op->getResults()) {
        places.push_back(getPlace(total, point));
        values.push_back(readInit(e, total, places.back()));
      }
    }
    values = e.nest(
        getParts(e.target), values, [&](ArrayRef<Index> part, ValueRange sums) {
          SmallVector<Index> place(part);
          llvm::append_range(place, rows);
          SmallVector<Value> next;
          for (auto [total, sum] : llvm::zip_equal(totals, sums))
            next.push_back(
                combine(e, total, e.load(parts.lookup(total), place), sum));
          return next;
        });
    for (auto [total, value, place] : llvm::zip_equal(totals, values, places))
      if (Value output = outputs.lookup(total))
        e.store(value, output, place);
  };
  if (nest.extents.empty())
    return emitRows({});
  emitPieces(e, ArrayRef(nest.extents).drop_back(), nest.extents.back(),
             getPieceSize(e.target), [&](SmallVector<Index> at, Index lane) {
               at.back() = lane;
               emitRows(at);
             });
}

void Chain::emit(Emitter &e, const DenseMap<Value, Value> &outputs,
                 const PatternViews &patterns, ValueRange scratch) const {
  SmallVector<Nest> nests = getNests();
  DenseMap<Value, Value> parts;
  for (const Nest &nest : nests) {
    for (OpResult total : getTotals(nest.roots)) {
      parts[total] = scratch.front();
      scratch = scratch.drop_front();
    }
  }
  auto getItem = [&](SmallVector<Index> part, Index lane) {
    SmallVector<Index> at(ArrayRef(part).drop_back());
    at.insert(at.begin() + lanes, lane);
    return Item{std::move(at), std::move(part)};
  };
  if (product) {
    Value buffer = outputs.lookup(product);
    e.setBuffer(product, buffer);
    SmallVector<int64_t> dims = getProductRows();
    auto finish = [&](ArrayRef<Index> place, Index piece) {
      SmallVector<Index> part(place), rows;
      for (int64_t dim : dims) {
        rows.push_back(part[dim]);
        part[dim] = Index::constant(0);
      }
      part.back() = piece;
      emitRow(e, nests.front(), getItem(std::move(part), place.back()), rows,
              {}, outputs, parts);
    };
    Operation *op = product.getDefiningOp();
    if (auto spmm = dyn_cast<SpMMOp>(op))
      emitSpMM(e, spmm, buffer, patterns, finish);
    else
      emitContraction(e, cast<linalg::GenericOp>(op), outputs, finish);
    return emitTotals(e, nests.front(), outputs, parts);
  }
  // Every piece of the work starts without buffers of what it makes.
  auto emitItem = [&](const Item &item) {
    for (const Nest &nest : nests)
      emitNest(e, nest, item, outputs, parts);
    for (const Root &root : roots)
      for (OpResult result : root.op->getResults())
        e.setBuffer(result, Value());
  };
  if (lanes < 0)
    return emitParallel(e, extents, [&](ArrayRef<Index> at) {
      emitItem({SmallVector<Index>(at), {}});
    });

  SmallVector<int64_t> others(extents);
  others.erase(others.begin() + lanes);
  emitPieces(e, others, extents[lanes], getPieceSize(e.target),
             [&](SmallVector<Index> part, Index lane) {
               emitItem(getItem(std::move(part), lane));
             });
  for (const Nest &nest : nests)
    emitTotals(e, nest, outputs, parts);
}

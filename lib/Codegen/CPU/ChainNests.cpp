// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for chains of element-wise operations and reductions.

#include "ChainNests.h"
#include "LaneSums.h"
#include "SingleSpMM.h"
#include "SparseKernels.h"
#include "bsr/Codegen/Common/ChainPoints.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

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
    e.forall(counts, [&](ArrayRef<Index> at) {
      Index low = e.multiplyAdd(at.back(), size, Index::constant(0));
      e.forLanes(e.materialize(low), size, size,
                 [&](Index lane) { body(SmallVector<Index>(at), lane); });
    });
  if (extent % size)
    e.forall(extents, [&](ArrayRef<Index> at) {
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

/// The extents of the places of parts of totals. Pieces of the lanes are
/// computed at once, a register tile at most.
static SmallVector<int64_t> getPartExtents(const Chain &chain,
                                           CPUTarget target) {
  int64_t lanes = chain.getLanes(), extent = chain.getExtents()[lanes];
  SmallVector<int64_t> parts(chain.getExtents());
  parts.erase(parts.begin() + lanes);
  int64_t size = getPieceSize(target);
  parts.push_back(extent / size + llvm::popcount<uint64_t>(extent % size));
  return parts;
}

/// The results of `nest` that are totals.
static SmallVector<OpResult> getTotals(const Chain::Nest &nest) {
  SmallVector<OpResult> totals;
  for (const Chain::Root *root : nest.roots)
    if (root->isTotal)
      llvm::append_range(totals, root->op->getResults());
  return totals;
}

SmallVector<MemRefType> cpu::getScratch(const Chain &chain, CPUTarget target) {
  SmallVector<MemRefType> types;
  for (const Chain::Nest &nest : chain.getNests()) {
    for (OpResult total : getTotals(nest)) {
      SmallVector<int64_t> shape = getPartExtents(chain, target);
      llvm::append_range(shape, nest.extents);
      types.push_back(
          MemRefType::get(shape, getElementTypeOrSelf(total.getType())));
    }
  }
  if (Value product = chain.getProduct())
    llvm::append_range(types, getOrderMemory(product.getDefiningOp(), target));
  return types;
}

namespace {
/// Emits the work items of a chain.
class ChainEmitter {
public:
  using Nest = Chain::Nest;
  using Root = Chain::Root;

  ChainEmitter(Emitter &e, const Chain &chain,
               const DenseMap<Value, Value> &outputs, ValueRange scratch);

  /// Emits the work items, and the totals after them.
  void emit(const PatternViews &patterns);

private:
  /// A work item: where its shared loops are, and where its parts of totals
  /// lie in the scratch memory of each: at the shared loops but the lanes, and
  /// the number of the piece of these.
  struct Item {
    SmallVector<Index> at, part;
  };
  Item getItem(SmallVector<Index> part, Index lane) const;
  SmallVector<Index> getPoint(const Root &root, const Item &item,
                              ArrayRef<Index> rows) const {
    return bsr::getPoint(chain, root, item.at, rows);
  }
  SmallVector<Value> emitRow(const Nest &nest, const Item &item,
                             ArrayRef<Index> rows, ValueRange accumulators);
  void emitSquare(ArrayRef<Index> place);
  void prefetchSquares(ArrayRef<Index> place, int64_t features);
  void storeSquare(ArrayRef<Value> rows, Value output, ArrayRef<Index> place);
  std::pair<Item, SmallVector<Index>> getSums(ArrayRef<Index> place,
                                              Index piece) const;
  void prefetchRows(const Nest &nest, const Item &item, ArrayRef<Index> rows);
  void emitNest(const Nest &nest, const Item &item);
  void emitItem(const Item &item);
  SmallVector<Stream> getStreams(SpMMOp product) const;
  void emitProduct(const PatternViews &patterns);
  void emitTotals(const Nest &nest);

  Emitter &e;
  const Chain &chain;
  const DenseMap<Value, Value> &outputs;
  SmallVector<Nest> nests;
  int64_t lanes;
  /// The scratch memory of each total, and that of the product.
  DenseMap<Value, Value> parts;
  ValueRange scratch;
  /// What this work item has prefetched.
  llvm::SmallDenseSet<Value> prefetched;
};
} // namespace

ChainEmitter::ChainEmitter(Emitter &e, const Chain &chain,
                           const DenseMap<Value, Value> &outputs,
                           ValueRange scratch)
    : e(e), chain(chain), outputs(outputs), nests(chain.getNests()),
      lanes(chain.getLanes()) {
  for (const Nest &nest : nests) {
    for (OpResult total : getTotals(nest)) {
      parts[total] = scratch.front();
      scratch = scratch.drop_front();
    }
  }
  this->scratch = scratch;
}

ChainEmitter::Item ChainEmitter::getItem(SmallVector<Index> part,
                                         Index lane) const {
  SmallVector<Index> at(ArrayRef<Index>(part).drop_back());
  at.insert(at.begin() + lanes, lane);
  return Item{std::move(at), std::move(part)};
}

/// One step of all sums, and the elements and parts of totals of the same row.
SmallVector<Value> ChainEmitter::emitRow(const Nest &nest, const Item &item,
                                         ArrayRef<Index> rows,
                                         ValueRange accumulators) {
  SmallVector<Value> next;
  SmallVector<std::tuple<Value, Value, SmallVector<Index>>> stores;
  for (const Root *root : nest.roots) {
    if (chain.isTransposed(*root))
      continue;
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

/// Prefetches the rows that come 1 KiB later of what no nest before reads.
void ChainEmitter::prefetchRows(const Nest &nest, const Item &item,
                                ArrayRef<Index> rows) {
  if (rows.empty() || lanes < 0)
    return;
  int64_t ahead = std::max<int64_t>(1, prefetchedBytes / 4 / e.width);
  for (const Root *root : nest.roots)
    e.prefetchInputs(
        root->op, getPoint(*root, item, rows),
        [&](Index index) {
          return index == rows.back() ? index.plus(ahead) : index;
        },
        prefetched);
}

void ChainEmitter::emitNest(const Nest &nest, const Item &item) {
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

  Block *block = e.b.getInsertionBlock();
  auto step = [&](ArrayRef<Index> rows, ValueRange accumulators) {
    Operation *inner = e.b.getInsertionBlock()->getParentOp();
    if (Operation *loop = block->findAncestorOpInBlock(*inner))
      for (const Root *root : nest.roots)
        e.readBefore(loop, root->op, getPoint(*root, item, rows));
    prefetchRows(nest, item, rows);
    return emitRow(nest, item, rows, accumulators);
  };
  if (lanes >= 0 || nest.extents.empty())
    totals = e.nest(nest.extents, totals, step);
  else
    totals = emitSums(e, nest.extents, 2 * e.target.lanes, sums, totals, step);
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
void ChainEmitter::emitTotals(const Nest &nest) {
  SmallVector<OpResult> totals = getTotals(nest);
  if (totals.empty())
    return;
  auto emitRows = [&](ArrayRef<Index> rows) {
    SmallVector<SmallVector<Index>> places;
    SmallVector<Value> values;
    for (const Root *root : nest.roots) {
      if (!root->isTotal)
        continue;
      SmallVector<Index> point(root->op.getNumLoops(), Index::constant(0));
      for (auto [loop, row] : llvm::zip_equal(chain.getRows(*root), rows))
        point[loop] = row;
      for (OpResult total : root->op->getResults()) {
        places.push_back(getPlace(total, point));
        values.push_back(readInit(e, total, places.back()));
      }
    }
    values = e.nest(getPartExtents(chain, e.target), values,
                    [&](ArrayRef<Index> part, ValueRange sums) {
                      SmallVector<Index> place(part);
                      llvm::append_range(place, rows);
                      SmallVector<Value> next;
                      for (auto [total, sum] : llvm::zip_equal(totals, sums))
                        next.push_back(combine(
                            e, total, e.load(parts.lookup(total), place), sum));
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

void ChainEmitter::emitItem(const Item &item) {
  prefetched.clear();
  for (const Nest &nest : nests)
    emitNest(nest, item);
  // Every piece of the work starts without buffers of what it makes.
  for (const Root &root : chain.getRoots())
    for (OpResult result : root.op->getResults())
      e.setBuffer(result, Value());
}

/// The work item, and the rows in it, of the sums of the product at `place`.
std::pair<ChainEmitter::Item, SmallVector<Index>>
ChainEmitter::getSums(ArrayRef<Index> place, Index piece) const {
  SmallVector<Index> part(place), rows;
  for (int64_t dim : chain.getProductRows()) {
    rows.push_back(part[dim]);
    part[dim] = Index::constant(0);
  }
  part.back() = piece;
  return {getItem(std::move(part), place.back()), rows};
}

/// Stores `rows`, vectors of features that follow each other, at `place`, that
/// of the first: squares of them are transposed.
void ChainEmitter::storeSquare(ArrayRef<Value> rows, Value output,
                               ArrayRef<Index> place) {
  int64_t size = e.width;
  SmallVector<SmallVector<Value>> squares;
  for (size_t first = 0; first < rows.size(); first += size)
    squares.push_back(size == 1 ? SmallVector<Value>{rows[first]}
                                : e.transpose(rows.slice(first, size)));
  // A token after the other, so that its features are whole cache lines.
  for (int64_t token : llvm::seq(size))
    for (auto [number, square] : llvm::enumerate(squares)) {
      SmallVector<Index> to(place);
      for (Index &index : to)
        if (index.lanes)
          index = index.scalar().plus(token);
      to.back() = to.back().plus(number * size);
      to.back().lanes = size > 1;
      to.back().align = size;
      e.store(square[token], output, to);
    }
}

/// The transposed roots at `place` and the features that follow.
void ChainEmitter::emitSquare(ArrayRef<Index> place) {
  auto [item, rows] = getSums(place, Index::constant(0));
  for (const Root *root : nests.front().roots)
    for (OpResult result : root->op->getResults()) {
      Value output = outputs.lookup(result);
      if (!output || !chain.isTransposed(*root))
        continue;
      SmallVector<Value> values;
      for (int64_t feature : llvm::seq(Epilogue::squareFeatures)) {
        SmallVector<Index> at = bsr::getPlace(
            result, getPoint(*root, item, rows.front().plus(feature)));
        values.push_back(e.broadcast(e.read(result, at)));
      }
      storeSquare(values, output,
                  bsr::getPlace(result, getPoint(*root, item, rows)));
    }
}

/// Prefetches what `emitSquare` will write for `features` of the token at
/// `place`.
void ChainEmitter::prefetchSquares(ArrayRef<Index> place, int64_t features) {
  auto [item, rows] = getSums(place, Index::constant(0));
  for (const Root *root : nests.front().roots)
    for (OpResult result : root->op->getResults()) {
      Value output = outputs.lookup(result);
      if (output && chain.isTransposed(*root))
        e.prefetchMemory(output,
                         bsr::getPlace(result, getPoint(*root, item, rows)),
                         features, /*isWrite=*/true);
    }
}

/// The operands and results of the epilogue of `product` that have an element
/// for each of the product's: what is read there, as a rule, and else what a
/// prefetch costs nothing.
SmallVector<Stream> ChainEmitter::getStreams(SpMMOp product) const {
  SmallVector<Stream> streams;
  Type type = product.getY().getType();
  for (Value operand : product->getBlock()->getArguments())
    if (operand.getType() == type && operand != product.getX())
      streams.push_back({e.getBuffer(operand), /*isWritten=*/false});
  for (const Root *root : nests.front().roots)
    for (OpResult result : root->op->getResults())
      if (Value output = outputs.lookup(result);
          output && result.getType() == type && !chain.isTransposed(*root) &&
          output != outputs.lookup(product.getY()))
        streams.push_back({output, /*isWritten=*/true});
  return streams;
}

/// Emits the product, and the roots as its epilogue.
void ChainEmitter::emitProduct(const PatternViews &patterns) {
  Value product = chain.getProduct(), buffer = outputs.lookup(product);
  e.setBuffer(product, buffer);
  auto emitSums = [&](ArrayRef<Index> place, Index piece) {
    auto [item, rows] = getSums(place, piece);
    emitRow(nests.front(), item, rows, {});
  };
  auto emitTransposed = [&](ArrayRef<Index> place) { emitSquare(place); };
  Epilogue epilogue;
  auto prefetch = [&](ArrayRef<Index> place, int64_t features) {
    prefetchSquares(place, features);
  };
  if (chain.hasTransposed()) {
    epilogue.square = emitTransposed;
    epilogue.prefetch = prefetch;
  }
  bool hasRows = llvm::any_of(chain.getRoots(), [&](const Root &root) {
    return !chain.isTransposed(root);
  });
  if (hasRows)
    epilogue.row = emitSums;
  Operation *op = product.getDefiningOp();
  auto spmm = dyn_cast<SpMMOp>(op);
  if (spmm && !scratch.empty())
    emitOrderedSpMM(e, spmm, buffer, patterns, scratch, epilogue);
  else if (spmm)
    emitSpMM(e, spmm, buffer, patterns, epilogue, {}, getStreams(spmm));
  else
    emitContraction(e, cast<linalg::GenericOp>(op), outputs, epilogue);
}

void ChainEmitter::emit(const PatternViews &patterns) {
  ArrayRef<int64_t> extents = chain.getExtents();
  if (chain.getProduct()) {
    emitProduct(patterns);
    return emitTotals(nests.front());
  }
  if (lanes < 0)
    return e.forall(extents, [&](ArrayRef<Index> at) {
      emitItem({SmallVector<Index>(at), {}});
    });
  SmallVector<int64_t> others(extents);
  others.erase(others.begin() + lanes);
  emitPieces(e, others, extents[lanes], getPieceSize(e.target),
             [&](SmallVector<Index> part, Index lane) {
               emitItem(getItem(std::move(part), lane));
             });
  for (const Nest &nest : nests)
    emitTotals(nest);
}

void cpu::emitChain(Emitter &emitter, const Chain &chain,
                    const DenseMap<Value, Value> &outputs,
                    const PatternViews &patterns, ValueRange scratch) {
  ChainEmitter(emitter, chain, outputs, scratch).emit(patterns);
}

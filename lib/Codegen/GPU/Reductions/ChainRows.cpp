// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chains of reductions and element-wise operations in one launch.
//
// A thread block has some work items, and several threads share each: a
// thread takes every so many rows. Where these are few, loops over them are
// written out: what a nest has read or computed of a row, later ones find in
// registers. Sums over rows are combined by shuffles and in shared memory, in
// one order in all threads, each of which goes on with them. Of a total, a
// block leaves its partial sum for a second launch.

#include "bsr/Codegen/GPU/Reductions/ChainRows.h"
#include "bsr/Codegen/Common/ChainPoints.h"
#include "bsr/Codegen/Common/Combine.h"
#include "bsr/Codegen/GPU/Core/GPUEvaluator.h"
#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"
#include "bsr/Codegen/GPU/Reductions/Reductions.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <numeric>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

static constexpr int64_t warp = 32;
/// Threads of a block: where rows are few, and at most.
static constexpr int64_t blockThreads = 256, mostThreads = 512;
/// Rows that a thread should have at least, those that it keeps in registers at
/// most, and those that it may have where blocks are few.
static constexpr int64_t fewRows = 4, mostKept = 16, mostRows = 256;

std::optional<ChainRows> ChainRows::match(const ClusterPlan &plan) {
  if (!plan.chain || plan.chain->getProduct())
    return std::nullopt;
  ChainRows rows;
  rows.chain = &*plan.chain;
  rows.nests = rows.chain->getNests();
  rows.areRowsAdjacent = rows.chain->getLanes() < 0;
  rows.numItems = llvm::product_of(rows.chain->getExtents());
  // Partial sums are combined where all threads are: each takes as many
  // rows.
  int64_t most = 1, divided = 0;
  for (const Chain::Nest &nest : rows.nests) {
    int64_t count = llvm::product_of(nest.extents);
    most = std::max(most, count);
    if (count != 1 && llvm::any_of(nest.roots, [](const Chain::Root *root) {
          return root->isTotal;
        }))
      divided = std::gcd(divided, count);
  }
  rows.segments = rows.areRowsAdjacent ? warp : 1;
  rows.items = rows.areRowsAdjacent ? 1 : warp;
  int64_t busyBlocks =
      getBusyBlocks(getChip(rows.chain->getRoots().front().op));
  // 8 floats are a sector of 32 bytes: fewer would waste what is read.
  while (rows.items > 8 && rows.getNumGroups() < busyBlocks)
    rows.items /= 2;
  while (rows.getNumThreads() < mostThreads && rows.segments * fewRows < most &&
         divided % (2 * rows.segments) == 0)
    rows.segments *= 2;
  if (rows.areRowsAdjacent) {
    rows.items = std::max<int64_t>(1, blockThreads / rows.segments);
    while (rows.items > 1 && rows.items / 2 >= rows.numItems)
      rows.items /= 2;
  }
  while (rows.getNumThreads() < warp)
    rows.items *= 2;
  if (rows.getNumGroups() < busyBlocks / 4 && rows.getNumTaken(most) > mostRows)
    return std::nullopt;
  for (const Chain::Root &root : rows.chain->getRoots())
    for (Type type : root.op->getResultTypes()) {
      Type element = getElementTypeOrSelf(type);
      if (root.isReduction() &&
          (!element.isIntOrFloat() || element.getIntOrFloatBitWidth() < 16))
        return std::nullopt;
    }
  return rows;
}

bool ChainRows::areRowsFew() const {
  return llvm::all_of(nests, [&](const Chain::Nest &nest) {
    int64_t count = llvm::product_of(nest.extents);
    return count == 1 ||
           (count % segments == 0 && getNumTaken(count) <= mostKept);
  });
}

SmallVector<MemRefType> ChainRows::getScratch() const {
  SmallVector<MemRefType> types;
  for (const Chain::Root &root : chain->getRoots()) {
    if (!root.isTotal)
      continue;
    int64_t rows = llvm::product_of(nests[root.nest].extents);
    for (Type type : root.op->getResultTypes())
      types.push_back(
          MemRefType::get({getNumGroups(), rows}, getElementTypeOrSelf(type)));
  }
  return types;
}

namespace mlir::bsr::gpu {
/// What a thread does.
class ChainRowsEmitter {
public:
  ChainRowsEmitter(const ChainRows &rows, Evaluator &e, KernelBody &kernel)
      : rows(rows), chain(*rows.chain), e(e), outputs(kernel.outputs) {
    ValueRange scratch = kernel.scratch;
    for (const Chain::Root &root : chain.getRoots())
      if (root.isTotal)
        for (Value total : root.op->getResults()) {
          partials[total] = scratch.front();
          scratch = scratch.drop_front();
        }
  }
  void emit(mlir::gpu::LaunchOp launch);
  /// The types of the arrays in shared memory, one for each sum over rows.
  SmallVector<Type> getSharedTypes() const;

private:
  using Nest = Chain::Nest;
  using Root = Chain::Root;

  bool needsShared() const {
    return rows.areRowsAdjacent ? rows.segments > warp
                                : rows.getNumThreads() > warp;
  }
  /// Values of an item that are combined in shared memory: those of warps.
  int64_t getNumShared() const {
    return (rows.areRowsAdjacent ? rows.segments : rows.getNumThreads()) / warp;
  }
  void setItem();
  void emitNest(const Nest &nest);
  /// One row: adds to `sums` what it has, stores the rest.
  SmallVector<Value> emitRow(const Nest &nest, ArrayRef<Index> row,
                             Index number, ValueRange sums);
  /// The rows of `nest` at `number`; the same indices for the same rows.
  SmallVector<Index> getRows(const Nest &nest, Index number);
  /// `value` of all threads of the item, combined.
  Value combineRows(OpResult sum, Value value);
  Value combineItems(OpResult total, Value value);
  Value exchange(OpResult sum, Value value, int64_t first, int64_t end);
  /// Stores `value` at `indices` in the threads where `condition` holds; null:
  /// in all.
  void store(Value value, Value memref, ArrayRef<Index> indices,
             Value condition);
  Value both(Value x, Value y) {
    if (!x || !y)
      return x ? x : y;
    return arith::AndIOp::create(e.b, e.loc, x, y);
  }

  const ChainRows &rows;
  const Chain &chain;
  Evaluator &e;
  const DenseMap<Value, Value> &outputs;
  DenseMap<Value, Value> partials;
  ValueRange shared;

  Index thread, group, item, segment;
  /// The shared loops: where the thread reads, and where it writes if
  /// `isInside`; null: everywhere.
  SmallVector<Index> at, written;
  Value isInside, isFirst;
  std::map<std::pair<SmallVector<int64_t>, int64_t>, SmallVector<Index>> known;
};
} // namespace mlir::bsr::gpu

SmallVector<Type> ChainRowsEmitter::getSharedTypes() const {
  SmallVector<Type> types;
  if (!needsShared())
    return types;
  auto space = mlir::gpu::AddressSpaceAttr::get(
      e.b.getContext(), mlir::gpu::AddressSpace::Workgroup);
  for (const Root &root : chain.getRoots())
    if (root.isSum())
      for (Type type : root.op->getResultTypes())
        types.push_back(MemRefType::get({getNumShared() * rows.items},
                                        getElementTypeOrSelf(type), AffineMap(),
                                        space));
  return types;
}

void ChainRowsEmitter::setItem() {
  if (rows.areRowsAdjacent)
    std::tie(item, segment) = e.split(thread, rows.segments);
  else
    std::tie(segment, item) = e.split(thread, rows.items);
  if (rows.items == 1)
    item = Index::constant(0);
  if (rows.segments == 1)
    segment = Index::constant(0);
  Index number = e.multiplyAdd(group, rows.items, item);
  ArrayRef<int64_t> extents = chain.getExtents();
  written = splitAll(e, number, extents);
  at = written;
  isFirst = e.areZero(segment);
  // All threads come to barriers: those beyond the last item take it again.
  if (rows.numItems % rows.items == 0)
    return;
  Value n = e.materialize(number);
  isInside = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult, n,
                                   e.constant(rows.numItems));
  at = splitAll(e,
                Index::of(arith::MinUIOp::create(
                    e.b, e.loc, n, e.constant(rows.numItems - 1))),
                extents);
}

SmallVector<Index> ChainRowsEmitter::getRows(const Nest &nest, Index number) {
  if (number.base != segment.base)
    return splitAll(e, number, nest.extents);
  SmallVector<Index> &row = known[{nest.extents, number.offset}];
  if (row.empty())
    row = splitAll(e, number, nest.extents);
  return row;
}

Value ChainRowsEmitter::exchange(OpResult sum, Value value, int64_t first,
                                 int64_t end) {
  for (int64_t distance = first; distance < end; distance *= 2)
    value = combine(e, sum, value,
                    shuffle(e, value, distance, mlir::gpu::ShuffleMode::XOR));
  return value;
}

Value ChainRowsEmitter::combineRows(OpResult sum, Value value) {
  value = rows.areRowsAdjacent
              ? exchange(sum, value, 1, std::min(warp, rows.segments))
              : exchange(sum, value, rows.items,
                         std::min(warp, rows.getNumThreads()));
  if (!needsShared())
    return value;
  Value memory = shared.front();
  shared = shared.drop_front();
  int64_t count = getNumShared();
  auto getPlace = [&](Index number) {
    return rows.areRowsAdjacent ? e.multiplyAdd(item, count, number)
                                : e.multiplyAdd(number, rows.items, item);
  };
  auto [number, lane] = e.split(rows.areRowsAdjacent ? segment : thread, warp);
  // Of the lanes of a warp that have a value, the first one.
  Value isWriter =
      rows.areRowsAdjacent
          ? e.areZero(lane)
          : arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult,
                                  e.materialize(lane), e.constant(rows.items))
                .getResult();
  store(value, memory, getPlace(number), isWriter);
  mlir::gpu::BarrierOp::create(e.b, e.loc);
  Value all;
  for (int64_t other = 0; other != count; ++other) {
    Value next = e.load(memory, getPlace(Index::constant(other)));
    all = all ? combine(e, sum, all, next) : next;
  }
  return all;
}

Value ChainRowsEmitter::combineItems(OpResult total, Value value) {
  if (isInside)
    value = arith::SelectOp::create(e.b, e.loc, isInside, value,
                                    createNeutral(e, total));
  return exchange(total, value, 1, rows.items);
}

void ChainRowsEmitter::store(Value value, Value memref, ArrayRef<Index> indices,
                             Value condition) {
  if (!condition)
    return e.store(value, memref, indices);
  auto guard = scf::IfOp::create(e.b, e.loc, condition);
  e.scope([&] {
    e.b.setInsertionPointToStart(guard.thenBlock());
    e.store(value, memref, indices);
  });
}

SmallVector<Value> ChainRowsEmitter::emitRow(const Nest &nest,
                                             ArrayRef<Index> row, Index number,
                                             ValueRange sums) {
  SmallVector<Value> next;
  // Without rows, all threads of an item have the same.
  bool isOne = llvm::product_of(nest.extents) == 1;
  Value isWriter = both(isInside, isOne ? isFirst : Value());
  for (const Root *root : nest.roots) {
    SmallVector<Index> point = getPoint(chain, *root, at, row);
    if (root->isSum()) {
      unsigned count = root->op->getNumResults();
      llvm::append_range(next,
                         e.evaluate(root->op, point, sums.take_front(count)));
      sums = sums.drop_front(count);
      continue;
    }
    SmallVector<Value> neutral;
    if (root->isTotal) {
      for (OpResult total : root->op->getResults())
        neutral.push_back(createNeutral(e, total));
      SmallVector<Value> values = e.evaluate(root->op, point, neutral);
      for (auto [total, value] :
           llvm::zip_equal(root->op->getResults(), values))
        store(combineItems(total, value), partials.lookup(total),
              {group, number},
              both(e.areZero(item), isOne ? isFirst : Value()));
      continue;
    }
    SmallVector<Index> indices = getPoint(chain, *root, written, row);
    for (OpResult result : root->op->getResults())
      if (Value output = outputs.lookup(result))
        store(e.read(result, getPlace(result, point)), output,
              getPlace(result, indices), isWriter);
  }
  return next;
}

void ChainRowsEmitter::emitNest(const Nest &nest) {
  SmallVector<OpResult> sums;
  SmallVector<Value> values;
  for (const Root *root : nest.roots)
    if (root->isSum())
      for (OpResult sum : root->op->getResults()) {
        sums.push_back(sum);
        values.push_back(createNeutral(e, sum));
      }
  int64_t count = llvm::product_of(nest.extents);
  if (count == 1) {
    SmallVector<Index> row(nest.extents.size(), Index::constant(0));
    values = emitRow(nest, row, Index::constant(0), values);
  } else if (rows.areRowsFew()) {
    for (int64_t i = 0; i != rows.getNumTaken(count); ++i) {
      Index number = segment.plus(i * rows.segments);
      values = emitRow(nest, getRows(nest, number), number, values);
    }
  } else {
    values =
        e.loop(e.materialize(segment), e.constant(count), rows.segments, values,
               [&](Value k, ValueRange carried) {
                 Index number = Index::of(k);
                 return emitRow(nest, getRows(nest, number), number, carried);
               });
  }
  unsigned next = 0;
  for (const Root *root : nest.roots) {
    if (!root->isSum())
      continue;
    for (OpResult sum : root->op->getResults()) {
      Value value = values[next++];
      if (count != 1 && rows.segments != 1)
        value = combineRows(sum, value);
      else if (needsShared())
        shared = shared.drop_front();
      SmallVector<Index> indices =
          bsr::getPlace(sum, getPoint(chain, *root, at, {}));
      value = combine(e, sum, readInit(e, sum, indices), value);
      e.remember(sum, indices, value);
      if (Value output = outputs.lookup(sum))
        store(value, output,
              bsr::getPlace(sum, getPoint(chain, *root, written, {})),
              both(isInside, isFirst));
    }
  }
}

void ChainRowsEmitter::emit(mlir::gpu::LaunchOp launch) {
  OpBuilder &b = e.b;
  shared = launch.getWorkgroupAttributions();
  e.scope([&] {
    b.setInsertionPointToStart(&launch.getBody().front());
    Operation *last = mlir::gpu::TerminatorOp::create(b, e.loc);
    b.setInsertionPoint(last);
    thread = Index::of(launch.getThreadIds().x);
    group = Index::of(launch.getBlockIds().x);
    setItem();
    for (const Nest &nest : rows.nests)
      emitNest(nest);
  });
}

LogicalResult ChainRows::emit(OpBuilder &b, KernelBody &kernel) const {
  GPUEvaluator e(b, kernel.loc);
  for (auto [argument, buffer] : kernel.inputs)
    e.setBuffer(argument, buffer);
  ChainRowsEmitter emitter(*this, e, kernel);
  Value one = e.constant(1);
  auto launch = mlir::gpu::LaunchOp::create(
      b, e.loc, e.constant(getNumGroups()), one, one,
      e.constant(getNumThreads()), one, one,
      /*dynamicSharedMemorySize=*/Value(), /*asyncTokenType=*/Type(),
      /*asyncDependencies=*/ValueRange(), emitter.getSharedTypes());
  emitter.emit(launch);
  ValueRange scratch = kernel.scratch;
  for (const Chain::Root &root : chain->getRoots()) {
    if (!root.isTotal)
      continue;
    unsigned count = root.op->getNumResults();
    emitSumOfPartials(e, *chain, root, scratch.take_front(count),
                      kernel.outputs);
    scratch = scratch.drop_front(count);
  }
  return failure(e.hasFailed);
}

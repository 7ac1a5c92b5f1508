// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the gradient of attention sums up those of queries, keys, values and
// the bias.

#include "GradientEmitter.h"
#include "bsr/Codegen/CPU/Kernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Adds to `memory`, a row for each key of what `result` will be, the products
/// of `factors`, of a query and a key each, and the features of the queries in
/// `rows`. Where `result` is written, and what is read of `operand` for the
/// next keys, is prefetched meanwhile.
void GradientEmitter::addTo(const LaneRows &memory,
                            const AttentionTensor &result,
                            const AttentionTensor &operand, unsigned featureDim,
                            const LaneRows &factors, const FeatureRows &rows,
                            int64_t count) {
  int64_t features = attention.extents[featureDim];
  int64_t lanes = getFeatureLanes(features);
  forFeatures(features, [&](Index lane) {
    forTiles(run.count, lanes, {}, [&](Index first, int64_t size, ValueRange) {
      SmallVector<Value> sums;
      for (int64_t row = 0; row != size; ++row) {
        Index key = e.multiplyAdd(first.plus(row), 1, run.first);
        AttentionPoint at{rows.at.batch, rows.first, key, lane};
        prefetch(result, at, featureDim, lanes);
        at.key = getNext(key);
        prefetch(operand, at, featureDim, lanes);
        sums.push_back(loadRow(memory, first.plus(row), lanes, lane));
      }
      sums = multiply(
          sums, count, lanes,
          [&](Index query) { return loadFeatures(rows, query, lane, lanes); },
          [&](Index query, int64_t row) {
            return e.load(factors.memory, {query, first.plus(row)});
          });
      for (auto [row, sum] : llvm::enumerate(sums))
        storeRow(sum, memory, first.plus(row), lane);
      return SmallVector<Value>();
    });
  });
}

/// The key of the next block at the place of `key`, or the last one.
Index GradientEmitter::getNext(Index key) {
  Value next = e.materialize(key.plus(run.count));
  Value last =
      arith::ConstantIndexOp::create(e.b, e.loc, attention.getKeys() - 1);
  return Index::of(arith::MinUIOp::create(e.b, e.loc, next, last));
}

/// Where `width` lanes of the sums of a query lie.
SmallVector<Index> GradientEmitter::placeQuery(ArrayRef<Index> batch,
                                               Index query, Index lane,
                                               int64_t width) {
  lane.lanes = width > 1;
  if (!querySums)
    return place(attention.dq, {batch, query, Index::constant(0), lane});
  SmallVector<Index> place(batch);
  place.append({query, lane});
  return place;
}

/// Adds to the gradients of `count` queries from that of `at` on, before those
/// from `next` on.
void GradientEmitter::addToQueries(AttentionPoint at, int64_t count,
                                   std::optional<Index> next) {
  if (!outputs.lookup(attention.dq.tensor))
    return;
  int64_t lanes = getFeatureLanes(numFeatures);
  Value memory = querySums ? querySums : outputs.lookup(attention.dq.tensor);
  forFeatures(numFeatures, [&](Index lane) {
    forTiles(count, lanes, {}, [&](Index first, int64_t rows, ValueRange) {
      llvm::SaveAndRestore saved(e.width, lanes);
      auto placeRow = [&](int64_t row) {
        Index query = e.multiplyAdd(first.plus(row), 1, at.query);
        return placeQuery(at.batch, query, lane, lanes);
      };
      SmallVector<Value> sums;
      for (int64_t row = 0; row != rows; ++row) {
        if (next) {
          Index query = e.multiplyAdd(first.plus(row), 1, *next);
          e.prefetchMemory(memory, placeQuery(at.batch, query, lane, lanes),
                           lanes, /*isWrite=*/true);
        }
        sums.push_back(e.load(memory, placeRow(row)));
      }
      sums = multiply(
          sums, run.count, lanes,
          [&](Index key) { return loadFeatures(keyRows, key, lane, lanes); },
          [&](Index key, int64_t row) {
            return e.load(gradients.memory, {first.plus(row), key});
          });
      for (auto [row, sum] : llvm::enumerate(sums))
        e.store(sum, memory, placeRow(row));
      return SmallVector<Value>();
    });
  });
}

/// Writes the sums of a block of keys.
void GradientEmitter::storeKeys(const AttentionTensor &tensor,
                                unsigned featureDim, const LaneRows &sums,
                                ArrayRef<Index> batch) {
  int64_t features = attention.extents[featureDim];
  if (outputs.lookup(tensor.tensor))
    unpack(sums, tensor, {batch, Index::constant(0), run.first},
           attention.getKeyDim(), run.first, run.count, featureDim,
           {Index::constant(0), features, getFeatureWidth(features)});
}

/// Makes the gradients of all queries 0.
void GradientEmitter::clearQueries(ArrayRef<Index> batch) {
  if (!outputs.lookup(attention.dq.tensor))
    return;
  int64_t lanes = getFeatureLanes(numFeatures);
  Value memory = querySums ? querySums : outputs.lookup(attention.dq.tensor);
  e.loop(attention.getQueries(), {}, [&](Index query, ValueRange) {
    llvm::SaveAndRestore saved(e.width, lanes);
    forFeatures(numFeatures, [&](Index lane) {
      e.store(e.broadcast(constant(0)), memory,
              placeQuery(batch, query, lane, lanes));
    });
    return SmallVector<Value>();
  });
}

/// Makes the gradient of the bias 0.
void GradientEmitter::clearBias(ArrayRef<Index> batch) {
  if (!attention.dbias || !outputs.lookup(attention.dbias.tensor))
    return;
  SmallVector<unsigned> dims;
  for (unsigned dim : sharedDims)
    if (attention.dbias.has(dim))
      dims.push_back(dim);
  forBatch(batch, dims, [&](ArrayRef<Index> point) {
    unsigned dim = attention.getKeyDim();
    e.loop(attention.getQueries(), {}, [&](Index query, ValueRange) {
      for (const Tiles &tiles :
           getVectors(attention.getKeys(), e.target.panel()))
        e.loop(tiles.count, {}, [&](Index number, ValueRange) {
          llvm::SaveAndRestore saved(e.width, tiles.size);
          Index first =
              e.multiplyAdd(number, tiles.size, Index::constant(tiles.base));
          storeLanes(e.broadcast(constant(0)), attention.dbias,
                     {point, query, first}, dim,
                     {first, tiles.size, tiles.size});
          return SmallVector<Value>();
        });
      return SmallVector<Value>();
    });
  });
}

/// Adds `gradient`, of the scores of a query and the keys of `run`, to that of
/// the bias.
void GradientEmitter::addToBias(Value gradient, AttentionPoint at) {
  if (!outputs.lookup(attention.dbias.tensor))
    return;
  unsigned dim = attention.getKeyDim();
  llvm::SaveAndRestore saved(e.width, run.width);
  Value sum = arith::AddFOp::create(
      e.b, e.loc, e.broadcast(readLanes(attention.dbias, at, dim, run)),
      gradient);
  storeLanes(sum, attention.dbias, at, dim, run);
}

/// Writes the gradients of all queries, if they lie elsewhere.
void GradientEmitter::storeQueries(ArrayRef<Index> batch) {
  if (!outputs.lookup(attention.dq.tensor) || !querySums)
    return;
  Index none = Index::constant(0);
  LaneRows sums{querySums, SmallVector<Index>(batch)};
  unpack(sums, attention.dq, {batch, none, none}, attention.getQueryDim(), none,
         attention.getQueries(), attention.getFeatureDim(),
         {none, numFeatures, featureWidth});
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.attention_grad: probabilities and their gradients of a
// block of keys and a block of queries at a time, computed again from the
// statistics of the rows.

#include "AttentionGradient.h"
#include "AttentionTiles.h"
#include "GradientEmitter.h"
#include "bsr/Codegen/CPU/Kernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Queries of a block, of as many keys as a register tile has lanes.
static constexpr int64_t queryBlock = 64;

/// True if rows of the gradient of the queries are whole vectors of numbers as
/// sums are.
static bool isInPlace(const Attention &attention, CPUTarget target) {
  auto type = cast<RankedTensorType>(attention.dq.tensor.getType());
  AffineExpr last = attention.dq.map.getResults().back();
  return type.getElementType() == getElementTypeOrSelf(attention.lse) &&
         last ==
             getAffineDimExpr(attention.getFeatureDim(), type.getContext()) &&
         attention.getFeatures() % target.lanes == 0;
}

SmallVector<MemRefType> cpu::getGradientScratch(const Attention &attention,
                                                CPUTarget target) {
  if (isInPlace(attention, target))
    return {};
  SmallVector<int64_t> shape(attention.getBatch());
  shape.append({attention.getQueries(),
                static_cast<int64_t>(
                    llvm::alignTo(attention.getFeatures(), target.lanes))});
  return {MemRefType::get(shape, getElementTypeOrSelf(attention.lse))};
}

void GradientEmitter::emit() {
  if (attention.dbias)
    e.setBuffer(attention.dbias.tensor, outputs.lookup(attention.dbias.tensor));
  SmallVector<int64_t> extents(attention.getBatch());
  for (unsigned dim = 0; dim != attention.numBatchDims; ++dim) {
    if (!attention.dk.has(dim))
      sharedDims.push_back(dim);
    else if (attention.dbias && !attention.dbias.has(dim))
      biasDims.push_back(dim);
    else
      continue;
    extents[dim] = 1;
  }
  e.forall(extents, [&](ArrayRef<Index> item) { emitItem(item); });
}

/// Calls `body` for all positions along `dims`, one after the other; along the
/// other batch dimensions they are those of `batch`.
void GradientEmitter::forBatch(ArrayRef<Index> batch, ArrayRef<unsigned> dims,
                               llvm::function_ref<void(ArrayRef<Index>)> body) {
  SmallVector<int64_t> extents;
  for (unsigned dim : dims)
    extents.push_back(attention.extents[dim]);
  e.nest(extents, {}, [&](ArrayRef<Index> at, ValueRange) {
    SmallVector<Index> point(batch);
    for (auto [dim, index] : llvm::zip_equal(dims, at))
      point[dim] = index;
    body(point);
    return SmallVector<Value>();
  });
}

/// All gradients of a work item.
void GradientEmitter::emitItem(ArrayRef<Index> batch) {
  int64_t panel = e.target.panel();
  PatternType pattern =
      attention.pattern ? attention.pattern.getType() : PatternType();
  int64_t size = pattern ? getDivisor(pattern.getBlockCols(), panel)
                         : std::min(panel, attention.getKeys());
  int64_t rows = pattern ? pattern.getBlockRows()
                         : std::min(queryBlock, attention.getQueries());
  int64_t width = getWidth(size);
  unsigned dim = attention.getKeyDim(), queryDim = attention.getQueryDim();
  unsigned featureDim = attention.getFeatureDim();
  unsigned valueDim = attention.getValueFeatureDim();
  SmallVector<int64_t> rowsOfMeans;
  for (unsigned dim : sharedDims)
    rowsOfMeans.push_back(attention.extents[dim]);
  rowsOfMeans.push_back(attention.getQueries());
  means = e.allocate(rowsOfMeans, sumType);
  keys = allocate(numFeatures, width);
  values = allocate(numValueFeatures, width);
  keyMemory = allocateRows(attention.k, dim, size, featureDim);
  keySums = allocate(size, featureWidth);
  valueSums = allocate(size, valueWidth);
  probabilities = allocate(rows, width);
  gradients = allocate(rows, width);
  queryMemory = allocateRows(attention.q, queryDim, rows, featureDim);
  dyMemory = allocateRows(attention.dy, queryDim, rows, valueDim);
  clearBias(batch);
  forBatch(batch, biasDims, [&](ArrayRef<Index> point) { emitPoint(point); });
}

/// The gradients of all keys and values of a point along the batch dimensions
/// that they have, and of the queries that read them.
void GradientEmitter::emitPoint(ArrayRef<Index> batch) {
  PatternType pattern =
      attention.pattern ? attention.pattern.getType() : PatternType();
  int64_t panel = e.target.panel();
  int64_t size = pattern ? getDivisor(pattern.getBlockCols(), panel)
                         : std::min(panel, attention.getKeys());
  forBatch(batch, sharedDims, [&](ArrayRef<Index> point) {
    computeMeans(point);
    clearQueries(point);
  });
  if (pattern) {
    int64_t cols = pattern.getBlockCols();
    e.nest({pattern.getGridCols(), cols / size}, {},
           [&](ArrayRef<Index> at, ValueRange) {
             Index first = e.multiplyAdd(
                 at[0], cols, e.multiplyAdd(at[1], size, Index::constant(0)));
             emitKeys(batch, at[0], {first, size, getWidth(size)});
             return SmallVector<Value>();
           });
  } else {
    for (const Tiles &tiles : tileWithRemainder(attention.getKeys(), size))
      e.loop(tiles.count, {}, [&](Index number, ValueRange) {
        Index first =
            e.multiplyAdd(number, tiles.size, Index::constant(tiles.base));
        emitKeys(batch, {}, {first, tiles.size, getWidth(tiles.size)});
        return SmallVector<Value>();
      });
  }
  forBatch(batch, sharedDims,
           [&](ArrayRef<Index> point) { storeQueries(point); });
}

/// What all gradients of a row's scores are less by: sum_e dy y, scaled. Lanes
/// are features, in sums of several rows at a time, or queries where these lie
/// side by side.
void GradientEmitter::computeMeans(ArrayRef<Index> batch) {
  unsigned dim = attention.getQueryDim();
  unsigned valueDim = attention.getValueFeatureDim();
  auto sumAlong = [&](unsigned dim, AttentionPoint at, LaneRun run, Value sum) {
    Value dy = readLanes(attention.dy, at, dim, run);
    Value y = readLanes(attention.y, at, dim, run);
    return multiplyAdd(e, dy, y, sum);
  };
  auto store = [&](Value sum, Index lane, int64_t size) {
    llvm::SaveAndRestore saved(e.width, size);
    lane.lanes = size > 1;
    sum = arith::MulFOp::create(e.b, e.loc, sum,
                                e.broadcast(constant(gradientScale)));
    e.store(sum, means, placeMean(batch, lane));
  };
  if (isAlong(attention.dy, valueDim) && isAlong(attention.y, valueDim) &&
      e.target.lanes > 1 && numValueFeatures >= e.target.lanes) {
    for (const Tiles &tiles :
         tileWithRemainder(attention.getQueries(), e.target.lanes))
      e.loop(tiles.count, {}, [&](Index number, ValueRange) {
        Index first =
            e.multiplyAdd(number, tiles.size, Index::constant(tiles.base));
        SmallVector<Value> sums;
        for (int64_t row = 0; row != tiles.size; ++row) {
          AttentionPoint at{batch, first.plus(row), Index::constant(0)};
          llvm::SaveAndRestore saved(e.width, e.target.lanes);
          sums.push_back(e.broadcast(constant(0)));
          for (int64_t lane = 0; lane < numValueFeatures; lane += e.width)
            sums[row] =
                sumAlong(valueDim, at,
                         {Index::constant(lane),
                          std::min(e.width, numValueFeatures - lane), e.width},
                         sums[row]);
        }
        if (tiles.size == e.target.lanes) {
          store(e.sumLanes(sums), first, tiles.size);
          return SmallVector<Value>();
        }
        for (auto [row, sum] : llvm::enumerate(sums))
          store(e.sumLanes(sum), first.plus(row), 1);
        return SmallVector<Value>();
      });
    return;
  }
  int64_t size = std::min(e.target.panel(), attention.getQueries());
  for (const Tiles &tiles : tileWithRemainder(attention.getQueries(), size))
    e.loop(tiles.count, {}, [&](Index number, ValueRange) {
      Index first =
          e.multiplyAdd(number, tiles.size, Index::constant(tiles.base));
      for (const Tiles &piece : getVectors(tiles.size, size))
        for (int64_t i = 0; i != piece.count; ++i) {
          Index lane = first.plus(piece.base + i * piece.size);
          llvm::SaveAndRestore saved(e.width, piece.size);
          AttentionPoint at{batch, lane, Index::constant(0)};
          Value sum =
              e.loop(numValueFeatures, getZeros(e, sumType, 1),
                     [&](Index feature, ValueRange sum) {
                       return SmallVector<Value>{sumAlong(
                           dim, at.with(feature),
                           {lane, piece.size, piece.size}, sum.front())};
                     })[0];
          store(sum, lane, piece.size);
        }
      return SmallVector<Value>();
    });
}

/// Where the mean of a query lies.
SmallVector<Index> GradientEmitter::placeMean(ArrayRef<Index> batch,
                                              Index query) const {
  SmallVector<Index> place;
  for (unsigned dim : sharedDims)
    place.push_back(batch[dim]);
  place.push_back(query);
  return place;
}

/// The gradients of the keys and values of `run`, which lie in block column
/// `line` of the pattern, and what they add to those of the queries.
void GradientEmitter::emitKeys(ArrayRef<Index> batch, Index line, LaneRun run) {
  this->run = run;
  clear(keySums, run.count, featureWidth);
  clear(valueSums, run.count, valueWidth);
  // What heads share is packed once for all of them.
  bool isShared = llvm::none_of(sharedDims, [&](unsigned dim) {
    return attention.k.has(dim) || attention.v.has(dim);
  });
  if (isShared)
    packKeys(batch);
  forBatch(batch, sharedDims, [&](ArrayRef<Index> point) {
    if (!isShared)
      packKeys(point);
    addQueries(point, line);
  });
  storeKeys(attention.dk, attention.getFeatureDim(), keySums, batch);
  storeKeys(attention.dv, attention.getValueFeatureDim(), valueSums, batch);
}

/// Copies the keys and values of `run` to where products read them.
void GradientEmitter::packKeys(ArrayRef<Index> batch) {
  unsigned dim = attention.getKeyDim();
  AttentionPoint start{batch, Index::constant(0), run.first};
  Index none = Index::constant(0);
  // The scale of the scores, and that of their gradients.
  pack(attention.k, start, attention.getFeatureDim(), none, numFeatures, dim,
       run, keys, attention.scale);
  pack(attention.v, start, attention.getValueFeatureDim(), none,
       numValueFeatures, dim, run, values, gradientScale);
  keyRows = getRows(attention.k, start, dim, run.first, run.count,
                    attention.getFeatureDim(), keyMemory);
}

/// Adds the queries of a point of the batch.
void GradientEmitter::addQueries(ArrayRef<Index> batch, Index line) {
  int64_t rows = attention.pattern
                     ? attention.pattern.getType().getBlockRows()
                     : std::min(queryBlock, attention.getQueries());
  forLine(
      View::Columns, line, attention.getQueries(), rows, {},
      [&](Index query, int64_t count, std::optional<Index> next, ValueRange) {
        addBlock({batch, query, run.first}, count, next);
        return SmallVector<Value>();
      });
}

/// A part of what is known of the row of a query.
Value GradientEmitter::readLse(LsePart part, AttentionPoint at) {
  AttentionTensor statistics = getStatistics(part);
  return e.read(statistics.tensor, place(statistics, at));
}

/// Adds `count` queries from that of `at` on. Those from `next` on come after
/// them.
void GradientEmitter::addBlock(AttentionPoint at, int64_t count,
                               std::optional<Index> next) {
  unsigned dim = attention.getKeyDim();
  FeatureRows queries =
      getRows(attention.q, at, attention.getQueryDim(), at.query, count,
              attention.getFeatureDim(), queryMemory);
  FeatureRows dy = getRows(attention.dy, at, attention.getQueryDim(), at.query,
                           count, attention.getValueFeatureDim(), dyMemory);
  auto queryAt = [&](Index number) {
    return AttentionPoint{at.batch, e.multiplyAdd(number, 1, at.query), at.key};
  };
  auto multiplyRows = [&](const FeatureRows &rows, int64_t features,
                          const LaneRows &memory, Index first, int64_t size) {
    llvm::SaveAndRestore saved(e.width, run.width);
    return multiply(
        getZeros(e, sumType, size), features, run.width,
        [&](Index feature) { return loadRow(memory, feature, run.width); },
        [&](Index feature, int64_t row) {
          return loadFeature(rows, first.plus(row), feature);
        });
  };
  forTiles(count, run.width, {}, [&](Index first, int64_t rows, ValueRange) {
    llvm::SaveAndRestore saved(e.width, run.width);
    for (int64_t row = 0; next && row != rows; ++row) {
      AttentionPoint ahead{at.batch, e.multiplyAdd(first.plus(row), 1, *next),
                           at.key};
      prefetch(attention.q, ahead, attention.getFeatureDim(), numFeatures);
      prefetch(attention.dy, ahead, attention.getValueFeatureDim(),
               numValueFeatures);
    }
    SmallVector<Value> products =
        multiplyRows(queries, numFeatures, keys, first, rows);
    for (auto [row, product] : llvm::enumerate(products)) {
      AttentionPoint from = queryAt(first.plus(row));
      Value score = getScores(product, from, dim, run);
      // One after the other: the sum of both is as coarse as the maximum.
      Value largest = readLse(LsePart::Maximum, from);
      Value logSum = readLse(LsePart::LogSum, from);
      Value difference =
          arith::SubFOp::create(e.b, e.loc, score, e.broadcast(largest));
      difference =
          arith::SubFOp::create(e.b, e.loc, difference, e.broadcast(logSum));
      Value power = exponentiate(difference);
      if (attention.zeroEmpty) {
        Value isEmpty =
            arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ,
                                  largest, constant(-INFINITY));
        power = arith::SelectOp::create(e.b, e.loc, isEmpty,
                                        e.broadcast(constant(0)), power);
      }
      storeRow(power, probabilities, first.plus(row));
    }
    products = multiplyRows(dy, numValueFeatures, values, first, rows);
    for (auto [row, product] : llvm::enumerate(products)) {
      AttentionPoint from = queryAt(first.plus(row));
      Value mean = e.load(means, placeMean(from.batch, from.query));
      Value probability = loadRow(probabilities, first.plus(row), run.width);
      product = applyFactor(product, from, dim, run);
      Value gradient = arith::MulFOp::create(
          e.b, e.loc, probability,
          arith::SubFOp::create(e.b, e.loc, product, e.broadcast(mean)));
      if (attention.factor)
        storeRow(applyFactor(probability, from, dim, run), probabilities,
                 first.plus(row));
      if (attention.mask)
        gradient = arith::SelectOp::create(
            e.b, e.loc, e.broadcast(readLanes(attention.mask, from, dim, run)),
            gradient, e.broadcast(constant(0)));
      if (attention.dbias) {
        addToBias(gradient, from);
        gradient = arith::MulFOp::create(
            e.b, e.loc, gradient, e.broadcast(constant(attention.scale)));
      }
      storeRow(gradient, gradients, first.plus(row));
    }
    return SmallVector<Value>();
  });
  addTo(valueSums, attention.dv, attention.v, attention.getValueFeatureDim(),
        probabilities, dy, count);
  addTo(keySums, attention.dk, attention.k, attention.getFeatureDim(),
        gradients, queries, count);
  addToQueries(at, count, next);
}

void cpu::emitAttentionGradient(Emitter &e, const Attention &attention,
                                const DenseMap<Value, Value> &outputs,
                                const PatternViews &patterns,
                                ValueRange scratch) {
  Value querySums = scratch.empty() ? Value() : scratch.front();
  GradientEmitter(e, attention, outputs, patterns, querySums).emit();
}

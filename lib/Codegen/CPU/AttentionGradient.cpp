// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.attention_grad: probabilities and their gradients of a
// block of keys and a block of queries at a time, computed again from the
// statistics of the rows.

#include "AttentionGradient.h"
#include "AttentionTiles.h"
#include "bsr/Codegen/CPU/Kernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;

/// Queries of a block, of as many keys as a register tile has lanes.
static constexpr int64_t queryBlock = 64;

namespace {
/// A work item is a point of the batch: it goes through blocks of keys, and for
/// each through the queries, row by row, lanes being keys. The gradients of a
/// block's keys and values are summed up in its cache, those of the queries in
/// memory of their own, so that nobody else adds to them.
class GradientEmitter : AttentionTiles {
public:
  GradientEmitter(Emitter &e, const Attention &attention,
                  const DenseMap<Value, Value> &outputs,
                  const PatternViews &patterns, Value querySums)
      : AttentionTiles(e, attention, outputs), patterns(patterns),
        querySums(querySums), numFeatures(attention.getFeatures()),
        numValueFeatures(attention.getValueFeatures()),
        featureWidth(cast<MemRefType>(querySums.getType()).getShape().back()) {}

  void emit();

private:
  void emitItem(ArrayRef<Index> batch);
  void computeMeans(ArrayRef<Index> batch);
  void emitKeys(ArrayRef<Index> batch, Index line, LaneRun run);
  void addBlock(AttentionPoint at, int64_t count);
  void addTo(const LaneRows &memory, const AttentionTensor &factor,
             int64_t features, const LaneRows &rows, AttentionPoint at,
             int64_t count);
  void storeKeys(const AttentionTensor &tensor, unsigned featureDim,
                 const LaneRows &sums, ArrayRef<Index> batch);
  void storeQueries(ArrayRef<Index> batch);
  Value readLse(LsePart part, AttentionPoint at);

  const PatternViews &patterns;
  Value querySums;
  int64_t numFeatures, numValueFeatures, featureWidth;
  /// Of the work item: the mean of each row's gradient.
  Value means;
  /// Of a block of keys.
  LaneRun run;
  LaneRows keys, values, keyRows, keySums, valueSums, probabilities, gradients;
};
} // namespace

MemRefType bsr::getGradientScratch(const Attention &attention,
                                   CPUTarget target) {
  SmallVector<int64_t> shape(attention.getBatch());
  int64_t features = attention.getFeatures();
  int64_t width = llvm::alignTo(features, target.lanes);
  shape.append({attention.getQueries(), width});
  return MemRefType::get(shape, getElementTypeOrSelf(attention.lse.getType()));
}

/// Lanes of a feature's vector: the widest that divide the sums' rows.
static int64_t getFeatureLanes(int64_t width, CPUTarget target) {
  return target.lanes * getDivisor(width / target.lanes, target.tileVectors());
}

void GradientEmitter::emit() {
  SmallVector<int64_t> extents(attention.getBatch());
  e.forall(extents, [&](ArrayRef<Index> item) { emitItem(item); });
}

/// The gradients of all queries, keys and values of a point of the batch.
void GradientEmitter::emitItem(ArrayRef<Index> batch) {
  int64_t panel = e.target.panel();
  PatternType pattern =
      attention.pattern ? attention.pattern.getType() : PatternType();
  int64_t size = pattern ? getDivisor(pattern.getBlockCols(), panel)
                         : std::min(panel, attention.getKeys());
  int64_t rows = pattern ? pattern.getBlockRows()
                         : std::min(queryBlock, attention.getQueries());
  int64_t width = getWidth(size);
  means = e.allocate({attention.getQueries()}, sumType);
  keys = allocate(numFeatures, width);
  values = allocate(numValueFeatures, width);
  keyRows = allocate(size, featureWidth);
  keySums = allocate(numFeatures, width);
  valueSums = allocate(numValueFeatures, width);
  probabilities = allocate(rows, width);
  gradients = allocate(rows, width);

  computeMeans(batch);
  clear({querySums, SmallVector<Index>(batch)}, attention.getQueries(),
        featureWidth);
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
  storeQueries(batch);
}

/// What all gradients of a row's scores are less by: sum_e dy y.
void GradientEmitter::computeMeans(ArrayRef<Index> batch) {
  int64_t size = std::min(e.target.panel(), attention.getQueries());
  for (const Tiles &tiles : tileWithRemainder(attention.getQueries(), size))
    e.loop(tiles.count, {}, [&](Index number, ValueRange) {
      Index first =
          e.multiplyAdd(number, tiles.size, Index::constant(tiles.base));
      for (const Tiles &piece : getVectors(tiles.size, size))
        for (int64_t i = 0; i != piece.count; ++i) {
          Index lane = first.plus(piece.base + i * piece.size);
          LaneRun run{lane, piece.size, piece.size};
          llvm::SaveAndRestore saved(e.width, piece.size);
          AttentionPoint at{batch, lane, Index::constant(0)};
          Value sum = e.loop(
              numValueFeatures, getZeros(e, sumType, 1),
              [&](Index feature, ValueRange sum) {
                unsigned dim = attention.getQueryDim();
                Value dy = readLanes(attention.dy, at.with(feature), dim, run);
                Value y = readLanes(attention.y, at.with(feature), dim, run);
                return SmallVector<Value>{multiplyAdd(e, dy, y, sum.front())};
              })[0];
          Index to = lane;
          to.lanes = piece.size > 1;
          e.store(sum, means, to);
        }
      return SmallVector<Value>();
    });
}

/// The gradients of the keys and values of `run`, which lie in block column
/// `line` of the pattern, and what they add to those of the queries.
void GradientEmitter::emitKeys(ArrayRef<Index> batch, Index line, LaneRun run) {
  this->run = run;
  unsigned dim = attention.getKeyDim();
  AttentionPoint start{batch, Index::constant(0), run.first};
  Index none = Index::constant(0);
  pack(attention.k, start, attention.getFeatureDim(), none, numFeatures, dim,
       run, keys);
  pack(attention.v, start, attention.getValueFeatureDim(), none,
       numValueFeatures, dim, run, values);
  pack(attention.k, start, dim, run.first, run.count, attention.getFeatureDim(),
       {none, numFeatures, featureWidth}, keyRows);
  clear(keySums, numFeatures, run.width);
  clear(valueSums, numValueFeatures, run.width);
  if (attention.pattern) {
    int64_t rows = attention.pattern.getType().getBlockRows();
    const PatternView &view = patterns.at({attention.pattern, View::Columns});
    forBlocks(e, view, line, {}, [&](Index, Index position, ValueRange) {
      Index query = e.multiplyAdd(position, rows, Index::constant(0));
      addBlock({batch, query, run.first}, rows);
      return SmallVector<Value>();
    });
  } else {
    int64_t rows = std::min(queryBlock, attention.getQueries());
    for (const Tiles &tiles : tileWithRemainder(attention.getQueries(), rows))
      e.loop(tiles.count, {}, [&](Index number, ValueRange) {
        Index query =
            e.multiplyAdd(number, tiles.size, Index::constant(tiles.base));
        addBlock({batch, query, run.first}, tiles.size);
        return SmallVector<Value>();
      });
  }
  scale(keySums, numFeatures, run.width, attention.scale);
  storeKeys(attention.dk, attention.getFeatureDim(), keySums, batch);
  storeKeys(attention.dv, attention.getValueFeatureDim(), valueSums, batch);
}

/// A part of what is known of the row of a query.
Value GradientEmitter::readLse(LsePart part, AttentionPoint at) {
  AttentionTensor statistics = getStatistics(part);
  return e.read(statistics.tensor, place(statistics, at));
}

/// Adds the products of `rows` and the elements of `factor` of the same
/// queries to `memory`, a row for each feature.
void GradientEmitter::addTo(const LaneRows &memory,
                            const AttentionTensor &factor, int64_t features,
                            const LaneRows &rows, AttentionPoint at,
                            int64_t count) {
  forTiles(features, run.width, {}, [&](Index first, int64_t size, ValueRange) {
    SmallVector<Value> sums;
    for (int64_t row = 0; row != size; ++row)
      sums.push_back(loadRow(memory, first.plus(row), run.width));
    sums =
        multiply(sums, count, rows, run.width, [&](Index number, int64_t row) {
          AttentionPoint from{at.batch, e.multiplyAdd(number, 1, at.query),
                              at.key, first.plus(row)};
          return readNumber(factor, from);
        });
    for (auto [row, sum] : llvm::enumerate(sums))
      storeRow(sum, memory, first.plus(row));
    return SmallVector<Value>();
  });
}

/// Adds `count` queries from that of `at` on.
void GradientEmitter::addBlock(AttentionPoint at, int64_t count) {
  unsigned dim = attention.getKeyDim();
  auto queryAt = [&](Index number) {
    return AttentionPoint{at.batch, e.multiplyAdd(number, 1, at.query), at.key};
  };
  auto multiplyRows = [&](const AttentionTensor &factor, int64_t features,
                          const LaneRows &memory, Index first, int64_t rows) {
    llvm::SaveAndRestore saved(e.width, run.width);
    return multiply(getZeros(e, sumType, rows), features, memory, run.width,
                    [&](Index feature, int64_t row) {
                      return readNumber(factor,
                                        queryAt(first.plus(row)).with(feature));
                    });
  };
  forTiles(count, run.width, {}, [&](Index first, int64_t rows, ValueRange) {
    llvm::SaveAndRestore saved(e.width, run.width);
    SmallVector<Value> products =
        multiplyRows(attention.q, numFeatures, keys, first, rows);
    for (auto [row, product] : llvm::enumerate(products)) {
      AttentionPoint from = queryAt(first.plus(row));
      Value score = getScores(product, from, dim, run, attention.scale);
      // One after the other: the sum of both is as coarse as the maximum.
      Value largest = readLse(LsePart::Maximum, from);
      Value logSum = readLse(LsePart::LogSum, from);
      Value difference =
          arith::SubFOp::create(e.b, e.loc, score, e.broadcast(largest));
      difference =
          arith::SubFOp::create(e.b, e.loc, difference, e.broadcast(logSum));
      Value power = math::ExpOp::create(e.b, e.loc, difference);
      if (attention.zeroEmpty) {
        Value isEmpty =
            arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ,
                                  largest, constant(-INFINITY));
        power = arith::SelectOp::create(e.b, e.loc, isEmpty,
                                        e.broadcast(constant(0)), power);
      }
      storeRow(power, probabilities, first.plus(row));
    }
    products =
        multiplyRows(attention.dy, numValueFeatures, values, first, rows);
    for (auto [row, product] : llvm::enumerate(products)) {
      AttentionPoint from = queryAt(first.plus(row));
      Value mean = e.load(means, from.query);
      Value gradient = arith::MulFOp::create(
          e.b, e.loc, loadRow(probabilities, first.plus(row), run.width),
          arith::SubFOp::create(e.b, e.loc, product, e.broadcast(mean)));
      if (attention.mask)
        gradient = arith::SelectOp::create(
            e.b, e.loc, e.broadcast(readLanes(attention.mask, from, dim, run)),
            gradient, e.broadcast(constant(0)));
      storeRow(gradient, gradients, first.plus(row));
    }
    return SmallVector<Value>();
  });
  addTo(valueSums, attention.dy, numValueFeatures, probabilities, at, count);
  addTo(keySums, attention.q, numFeatures, gradients, at, count);

  // The gradients of the queries: lanes are features.
  int64_t lanes = getFeatureLanes(featureWidth, e.target);
  LaneRows all{querySums, SmallVector<Index>(at.batch)};
  llvm::SaveAndRestore saved(e.width, lanes);
  for (int64_t number = 0; number != featureWidth; number += lanes)
    forTiles(count, lanes, {}, [&](Index first, int64_t rows, ValueRange) {
      Index lane = Index::constant(number);
      auto query = [&](int64_t row) { return queryAt(first.plus(row)).query; };
      SmallVector<Value> sums;
      for (int64_t row = 0; row != rows; ++row)
        sums.push_back(loadRow(all, query(row), lanes, lane));
      sums = e.loop(run.count, sums, [&](Index key, ValueRange carried) {
        SmallVector<Value> sums(carried);
        Value vector = loadRow(keyRows, key, lanes, lane);
        for (auto [row, sum] : llvm::enumerate(sums))
          sum = multiplyAdd(e, e.load(gradients.memory, {first.plus(row), key}),
                            vector, sum);
        return sums;
      });
      for (auto [row, sum] : llvm::enumerate(sums))
        storeRow(sum, all, query(row), lane);
      return SmallVector<Value>();
    });
}

/// Writes the sums of a block of keys.
void GradientEmitter::storeKeys(const AttentionTensor &tensor,
                                unsigned featureDim, const LaneRows &sums,
                                ArrayRef<Index> batch) {
  if (outputs.lookup(tensor.tensor))
    unpack(sums, tensor, {batch, Index::constant(0), run.first}, featureDim,
           Index::constant(0), attention.extents[featureDim],
           attention.getKeyDim(), run);
}

/// Writes the gradients of all queries.
void GradientEmitter::storeQueries(ArrayRef<Index> batch) {
  if (!outputs.lookup(attention.dq.tensor))
    return;
  Index none = Index::constant(0);
  LaneRows sums{querySums, SmallVector<Index>(batch)};
  scale(sums, attention.getQueries(), featureWidth, attention.scale);
  unpack(sums, attention.dq, {batch, none, none}, attention.getQueryDim(), none,
         attention.getQueries(), attention.getFeatureDim(),
         {none, numFeatures, featureWidth});
}

void bsr::emitAttentionGradient(Emitter &e, const Attention &attention,
                                const DenseMap<Value, Value> &outputs,
                                const PatternViews &patterns, Value querySums) {
  GradientEmitter(e, attention, outputs, patterns, querySums).emit();
}

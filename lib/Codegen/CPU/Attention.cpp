// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.attention: scores of some queries and a block of keys at a
// time, with a running maximum and sum.

#include "Attention.h"
#include "AttentionGradient.h"
#include "AttentionTiles.h"
#include "bsr/Codegen/CPU/Kernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Keys whose scores a work item has at a time, of as many queries as a
/// register tile has lanes: 64 x 64 numbers, 16 KiB.
static constexpr int64_t keyBlock = 64;

namespace {
/// A work item is a register tile's lanes of queries of one point of the batch.
/// Scores lie with a row for each key, so that maxima and sums over keys are
/// element by element. What they make of the values lies with a row for each
/// query, as in most tensors.
class ForwardEmitter : AttentionTiles {
public:
  ForwardEmitter(Emitter &e, const Attention &attention,
                 const DenseMap<Value, Value> &outputs,
                 const PatternViews &patterns)
      : AttentionTiles(e, attention, outputs, patterns) {}

  void emit();

private:
  /// What a work item carries from one block of keys to the next.
  struct Running {
    Value largest, sum;
  };

  void emitItem(ArrayRef<Index> batch, Index line, LaneRun run);
  Running addBlock(AttentionPoint at, int64_t keys, std::optional<Index> next,
                   Running running);
  void addValues(AttentionPoint at, int64_t keys);
  void finish(AttentionPoint at, Running running);

  /// Of the work item.
  LaneRun run;
  LaneRows queries, scores, factors, sums, values;
};
} // namespace

void ForwardEmitter::emit() {
  SmallVector<int64_t> extents(attention.getBatch());
  int64_t lanes = e.target.panel();
  if (attention.pattern) {
    PatternType pattern = attention.pattern.getType();
    int64_t rows = pattern.getBlockRows();
    int64_t size = getDivisor(rows, lanes);
    extents.append({pattern.getGridRows(), rows / size});
    e.forall(extents, [&](ArrayRef<Index> item) {
      Index line = item[item.size() - 2];
      Index first = e.multiplyAdd(
          line, rows, e.multiplyAdd(item.back(), size, Index::constant(0)));
      emitItem(item.drop_back(2), line, {first, size, getWidth(size)});
    });
    return;
  }
  int64_t size = std::min(lanes, attention.getQueries());
  for (const Tiles &tiles : tileWithRemainder(attention.getQueries(), size)) {
    SmallVector<int64_t> items(extents);
    items.push_back(tiles.count);
    e.forall(items, [&](ArrayRef<Index> item) {
      Index first =
          e.multiplyAdd(item.back(), tiles.size, Index::constant(tiles.base));
      emitItem(item.drop_back(), {}, {first, tiles.size, getWidth(tiles.size)});
    });
  }
}

/// The queries of `run`, which lie in block row `line` of the pattern.
void ForwardEmitter::emitItem(ArrayRef<Index> batch, Index line, LaneRun run) {
  this->run = run;
  PatternType pattern =
      attention.pattern ? attention.pattern.getType() : PatternType();
  int64_t block = pattern ? pattern.getBlockCols()
                          : std::min(keyBlock, attention.getKeys());
  AttentionPoint start{batch, run.first, Index::constant(0)};
  queries = allocate(attention.getFeatures(), run.width);
  scores = allocate(block, run.width);
  factors = allocate(1, run.width);
  int64_t features = attention.getValueFeatures();
  sums = allocate(run.count, getFeatureWidth(features));
  values = allocateRows(attention.v, attention.getKeyDim(), block,
                        attention.getValueFeatureDim());
  pack(attention.q, start, attention.getFeatureDim(), Index::constant(0),
       attention.getFeatures(), attention.getQueryDim(), run, queries,
       attention.scale);
  clear(sums, run.count, getFeatureWidth(features));

  llvm::SaveAndRestore saved(e.width, run.width);
  SmallVector<Value> carried{e.broadcast(constant(-INFINITY)),
                             e.broadcast(constant(0))};
  carried = forLine(View::Rows, line, attention.getKeys(), block, carried,
                    [&](Index key, int64_t keys, std::optional<Index> next,
                        ValueRange carried) {
                      Running running =
                          addBlock({batch, run.first, key}, keys, next,
                                   {carried[0], carried[1]});
                      return SmallVector<Value>{running.largest, running.sum};
                    });
  finish(start, {carried[0], carried[1]});
}

/// Adds `keys` keys from that of `at` on. Those from `next` on come after them.
ForwardEmitter::Running ForwardEmitter::addBlock(AttentionPoint at,
                                                 int64_t keys,
                                                 std::optional<Index> next,
                                                 Running running) {
  auto keyAt = [&](Index number) {
    return AttentionPoint{at.batch, at.query, e.multiplyAdd(number, 1, at.key)};
  };
  Value largest = forTiles(
      keys, run.width, running.largest,
      [&](Index first, int64_t rows, ValueRange largest) {
        // Products with the values are next.
        for (int64_t row = 0; row != rows; ++row)
          prefetch(attention.v, keyAt(first.plus(row)),
                   attention.getValueFeatureDim(),
                   attention.getValueFeatures());
        SmallVector<Value> products = multiply(
            getZeros(e, sumType, rows), attention.getFeatures(), run.width,
            [&](Index feature) { return loadRow(queries, feature, run.width); },
            [&](Index feature, int64_t row) {
              return readNumber(attention.k,
                                keyAt(first.plus(row)).with(feature));
            });
        Value next = largest.front();
        for (auto [row, product] : llvm::enumerate(products)) {
          Value score = getScores(product, keyAt(first.plus(row)),
                                  attention.getQueryDim(), run);
          storeRow(score, scores, first.plus(row));
          // A NaN is not the largest; it is part of the sum.
          Value isMore = arith::CmpFOp::create(
              e.b, e.loc, arith::CmpFPredicate::OGT, next, score);
          next = arith::SelectOp::create(e.b, e.loc, isMore, next, score);
        }
        return SmallVector<Value>{next};
      })[0];
  // Of a row in which nothing is live yet, no difference of infinities.
  Value none = e.broadcast(constant(-INFINITY));
  Value isEmpty = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ,
                                        largest, none);
  Value base = arith::SelectOp::create(e.b, e.loc, isEmpty,
                                       e.broadcast(constant(0)), largest);
  Value factor =
      exponentiate(arith::SubFOp::create(e.b, e.loc, running.largest, base));
  storeRow(factor, factors, Index::constant(0));
  Value sum = arith::MulFOp::create(e.b, e.loc, running.sum, factor);
  sum = e.loop(keys, sum, [&](Index key, ValueRange sum) {
    if (next)
      prefetch(attention.k, {at.batch, at.query, e.multiplyAdd(key, 1, *next)},
               attention.getFeatureDim(), attention.getFeatures());
    Value score = loadRow(scores, key, run.width);
    Value power = exponentiate(arith::SubFOp::create(e.b, e.loc, score, base));
    storeRow(applyFactor(power, keyAt(key), attention.getQueryDim(), run),
             scores, key);
    return SmallVector<Value>{
        arith::AddFOp::create(e.b, e.loc, sum.front(), power)};
  })[0];
  addValues(at, keys);
  return {largest, sum};
}

/// Multiplies what is summed up by what the maximum changed by, and adds the
/// products of probabilities and values: lanes are features.
void ForwardEmitter::addValues(AttentionPoint at, int64_t keys) {
  int64_t lanes = getFeatureLanes(attention.getValueFeatures());
  FeatureRows rows = getRows(attention.v, at, attention.getKeyDim(), at.key,
                             keys, attention.getValueFeatureDim(), values);
  forFeatures(attention.getValueFeatures(), [&](Index lane) {
    forTiles(run.count, lanes, {}, [&](Index first, int64_t size, ValueRange) {
      SmallVector<Value> products;
      for (int64_t row = 0; row != size; ++row) {
        llvm::SaveAndRestore saved(e.width, lanes);
        Value factor =
            e.load(factors.memory, {Index::constant(0), first.plus(row)});
        // In the end they are written.
        Index query = e.multiplyAdd(first.plus(row), 1, at.query);
        prefetch(attention.y, AttentionPoint{at.batch, query, at.key, lane},
                 attention.getValueFeatureDim(), lanes);
        products.push_back(
            arith::MulFOp::create(e.b, e.loc, e.broadcast(factor),
                                  loadRow(sums, first.plus(row), lanes, lane)));
      }
      products = multiply(
          products, keys, lanes,
          [&](Index key) { return loadFeatures(rows, key, lane, lanes); },
          [&](Index key, int64_t row) {
            return e.load(scores.memory, {key, first.plus(row)});
          });
      for (auto [row, product] : llvm::enumerate(products))
        storeRow(product, sums, first.plus(row), lane);
      return SmallVector<Value>();
    });
  });
}

/// Writes what was summed up, and the statistics of the rows.
void ForwardEmitter::finish(AttentionPoint at, Running running) {
  if (outputs.lookup(attention.y.tensor)) {
    int64_t features = attention.getValueFeatures();
    Value factor = arith::DivFOp::create(e.b, e.loc, e.broadcast(constant(1)),
                                         running.sum);
    if (attention.zeroEmpty) {
      Value zero = e.broadcast(constant(0));
      Value isEmpty = arith::CmpFOp::create(
          e.b, e.loc, arith::CmpFPredicate::OEQ, running.sum, zero);
      factor = arith::SelectOp::create(e.b, e.loc, isEmpty, zero, factor);
    }
    storeRow(factor, factors, Index::constant(0));
    scaleRows(sums, run.count, getFeatureWidth(features), factors);
    unpack(sums, attention.y, at, attention.getQueryDim(), run.first, run.count,
           attention.getValueFeatureDim(),
           {Index::constant(0), features, getFeatureWidth(features)});
  }
  if (outputs.lookup(attention.lse)) {
    unsigned dim = attention.getQueryDim();
    storeLanes(running.largest, getStatistics(LsePart::Maximum), at, dim, run);
    storeLanes(math::LogOp::create(e.b, e.loc, running.sum),
               getStatistics(LsePart::LogSum), at, dim, run);
  }
}

SmallVector<MemRefType> cpu::getAttentionScratch(const Attention &attention,
                                                 CPUTarget target) {
  if (isa<AttentionOp>(attention.op))
    return {};
  return getGradientScratch(attention, target);
}

void cpu::emitAttention(Emitter &e, const Attention &attention,
                        const DenseMap<Value, Value> &outputs,
                        const PatternViews &patterns, ValueRange scratch) {
  if (isa<AttentionOp>(attention.op))
    ForwardEmitter(e, attention, outputs, patterns).emit();
  else
    emitAttentionGradient(e, attention, outputs, patterns, scratch);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain loops for attention and its gradient: what kernels are compared with.

#include "AttentionLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// A query and a key at a point of the batch.
struct Point {
  ArrayRef<Index> batch;
  Index query, key;
};

class LoopEmitter {
public:
  LoopEmitter(Evaluator &e, const Attention &attention,
              const DenseMap<Value, Value> &outputs,
              const PatternViews &patterns)
      : e(e), attention(attention), outputs(outputs), patterns(patterns),
        sumType(getElementTypeOrSelf(attention.lse.getType())) {}

  void emitForward();
  void emitGradient();

private:
  using Sum = llvm::function_ref<Value(Index, Value)>;
  /// The maximum of a row, and the logarithm of the sum of the powers of what
  /// its entries are less.
  struct RowSum {
    Value largest, logSum;
  };

  SmallVector<Index> place(const AttentionTensor &tensor, Point at,
                           Index feature = Index::constant(0)) const;
  Value read(const AttentionTensor &tensor, Point at,
             Index feature = Index::constant(0));
  void store(Value value, const AttentionTensor &tensor, Point at,
             Index feature = Index::constant(0));
  Value getConstant(double value);
  Value dot(const AttentionTensor &a, const AttentionTensor &b, Point at,
            int64_t features);
  Value getScore(Point at);
  Value getProbability(Point at, RowSum row);
  Value applyFactor(Point at, Value value);
  Value getScoreGradient(Point at, Value probability);
  void forRows(const AttentionTensor &tensor, int64_t extent,
               llvm::function_ref<void(Point)> body);
  Value sumShared(const AttentionTensor &tensor, Point at, Value init,
                  llvm::function_ref<Value(Point, Value)> body);
  Value sumOver(Index line, Value init, Sum body);
  RowSum readLse(Point at);

  Evaluator &e;
  const Attention &attention;
  const DenseMap<Value, Value> &outputs;
  const PatternViews &patterns;
  Type sumType;
};
} // namespace

SmallVector<Index> LoopEmitter::place(const AttentionTensor &tensor, Point at,
                                      Index feature) const {
  SmallVector<Index> loops(at.batch);
  loops.append({at.query, at.key, feature, feature});
  return applyMap(tensor.map, loops);
}

Value LoopEmitter::read(const AttentionTensor &tensor, Point at,
                        Index feature) {
  return e.read(tensor.tensor, place(tensor, at, feature));
}

void LoopEmitter::store(Value value, const AttentionTensor &tensor, Point at,
                        Index feature) {
  Type type = getElementTypeOrSelf(tensor.tensor.getType());
  e.store(e.convert(value, type), outputs.lookup(tensor.tensor),
          place(tensor, at, feature));
}

Value LoopEmitter::getConstant(double value) {
  return arith::ConstantOp::create(e.b, e.loc,
                                   e.b.getFloatAttr(sumType, value));
}

/// The sum over `features` of products of `a` and `b` at `at`.
Value LoopEmitter::dot(const AttentionTensor &a, const AttentionTensor &b,
                       Point at, int64_t features) {
  return e.loop(
      features, getZeros(e, sumType, 1), [&](Index feature, ValueRange sum) {
        return SmallVector<Value>{multiplyAdd(
            e, read(a, at, feature), read(b, at, feature), sum.front())};
      })[0];
}

/// What is exponentiated.
Value LoopEmitter::getScore(Point at) {
  Value score = dot(attention.q, attention.k, at, attention.getFeatures());
  score =
      arith::MulFOp::create(e.b, e.loc, score, getConstant(attention.scale));
  if (attention.bias)
    score = arith::AddFOp::create(e.b, e.loc, score,
                                  e.convert(read(attention.bias, at), sumType));
  if (attention.mask)
    score = arith::SelectOp::create(e.b, e.loc, read(attention.mask, at), score,
                                    getConstant(attention.fill));
  return score;
}

/// Where part `part` of the statistics of a row are.
static SmallVector<Index> getLsePlace(LsePart part, ArrayRef<Index> row) {
  SmallVector<Index> place{Index::constant(static_cast<int64_t>(part))};
  llvm::append_range(place, row);
  return place;
}

LoopEmitter::RowSum LoopEmitter::readLse(Point at) {
  SmallVector<Index> row(at.batch);
  row.push_back(at.query);
  return {e.read(attention.lse, getLsePlace(LsePart::Maximum, row)),
          e.read(attention.lse, getLsePlace(LsePart::LogSum, row))};
}

Value LoopEmitter::getProbability(Point at, RowSum row) {
  // One after the other: the sum of both is as coarse as the maximum.
  Value difference =
      arith::SubFOp::create(e.b, e.loc, getScore(at), row.largest);
  difference = arith::SubFOp::create(e.b, e.loc, difference, row.logSum);
  Value result = math::ExpOp::create(e.b, e.loc, difference);
  if (!attention.zeroEmpty)
    return result;
  Value isEmpty = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ,
                                        row.largest, getConstant(-INFINITY));
  return arith::SelectOp::create(e.b, e.loc, isEmpty, getConstant(0), result);
}

/// `value`, of a probability or its gradient, times the factor.
Value LoopEmitter::applyFactor(Point at, Value value) {
  if (!attention.factor)
    return value;
  return arith::MulFOp::create(e.b, e.loc, value,
                               e.convert(read(attention.factor, at), sumType));
}

/// The gradient of the score, but for the scale.
Value LoopEmitter::getScoreGradient(Point at, Value probability) {
  int64_t features = attention.getValueFeatures();
  Value gradient =
      applyFactor(at, dot(attention.dy, attention.v, at, features));
  Value mean = dot(attention.dy, attention.y, at, features);
  gradient = arith::SubFOp::create(e.b, e.loc, gradient, mean);
  gradient = arith::MulFOp::create(e.b, e.loc, probability, gradient);
  if (attention.mask)
    gradient = arith::SelectOp::create(e.b, e.loc, read(attention.mask, at),
                                       gradient, getConstant(0));
  return gradient;
}

/// Carries `init` through the stored entries along `line`: the keys of a query,
/// or in a gradient's second half the queries of a key.
Value LoopEmitter::sumOver(Index line, Value init, Sum body) {
  bool isOverKeys = !isa<AttentionGradOp>(attention.op);
  int64_t extent = isOverKeys ? attention.getKeys() : attention.getQueries();
  if (!attention.pattern)
    return e.loop(extent, init, [&](Index at, ValueRange carried) {
      return SmallVector<Value>{body(at, carried.front())};
    })[0];
  PatternType pattern = attention.pattern.getType();
  View view = isOverKeys ? View::Rows : View::Columns;
  int64_t block = pattern.getBlockExtent(getOther(view));
  Index number = e.split(line, pattern.getBlockExtent(view)).first;
  return forBlocks(
      e, patterns.at({attention.pattern, view}), number, init,
      [&](Index, Index position, ValueRange carried) {
        return e.loop(block, carried, [&](Index at, ValueRange carried) {
          return SmallVector<Value>{
              body(e.multiplyAdd(position, block, at), carried.front())};
        });
      })[0];
}

void LoopEmitter::emitForward() {
  SmallVector<int64_t> extents(attention.getBatch());
  extents.push_back(attention.getQueries());
  e.forEach(extents, [&](ArrayRef<Index> item) {
    Point row{item.drop_back(), item.back(), Index::constant(0)};
    auto at = [&](Index key) { return Point{row.batch, row.query, key}; };
    Value largest =
        sumOver(row.query, getConstant(-INFINITY), [&](Index key, Value so) {
          return arith::MaximumFOp::create(e.b, e.loc, so, getScore(at(key)));
        });
    Value sum = sumOver(row.query, getConstant(0), [&](Index key, Value so) {
      Value power = math::ExpOp::create(
          e.b, e.loc,
          arith::SubFOp::create(e.b, e.loc, getScore(at(key)), largest));
      return arith::AddFOp::create(e.b, e.loc, so, power);
    });
    RowSum lse{largest, math::LogOp::create(e.b, e.loc, sum)};
    Value isEmpty = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ,
                                          largest, getConstant(-INFINITY));
    lse.logSum =
        arith::SelectOp::create(e.b, e.loc, isEmpty, largest, lse.logSum);
    if (Value output = outputs.lookup(attention.lse)) {
      e.store(lse.largest, output, getLsePlace(LsePart::Maximum, item));
      e.store(lse.logSum, output, getLsePlace(LsePart::LogSum, item));
    }
    if (!outputs.lookup(attention.y.tensor))
      return;
    e.loop(attention.getValueFeatures(), {}, [&](Index feature, ValueRange) {
      Value y = sumOver(row.query, getConstant(0), [&](Index key, Value so) {
        return multiplyAdd(e,
                           applyFactor(at(key), getProbability(at(key), lse)),
                           read(attention.v, at(key), feature), so);
      });
      // Nothing is stored: 0, or what nothing divided by nothing is.
      Value empty = getConstant(attention.zeroEmpty ? 0 : NAN);
      y = arith::SelectOp::create(e.b, e.loc, isEmpty, empty, y);
      store(y, attention.y, row, feature);
      return SmallVector<Value>();
    });
  });
}

/// Calls `body` for each point of the batch dimensions that `tensor` has (the
/// others are 0) and each of `extent` rows.
void LoopEmitter::forRows(const AttentionTensor &tensor, int64_t extent,
                          llvm::function_ref<void(Point)> body) {
  SmallVector<int64_t> extents;
  for (auto [dim, size] : llvm::enumerate(attention.getBatch()))
    extents.push_back(tensor.has(dim) ? size : 1);
  extents.push_back(extent);
  e.forEach(extents, [&](ArrayRef<Index> item) {
    body({item.drop_back(), item.back(), item.back()});
  });
}

/// Carries `init` through the points along the batch dimensions that `tensor`
/// lacks.
Value LoopEmitter::sumShared(const AttentionTensor &tensor, Point at,
                             Value init,
                             llvm::function_ref<Value(Point, Value)> body) {
  SmallVector<int64_t> extents;
  for (auto [dim, size] : llvm::enumerate(attention.getBatch()))
    extents.push_back(tensor.has(dim) ? 1 : size);
  return e.nest(extents, init, [&](ArrayRef<Index> item, ValueRange carried) {
    SmallVector<Index> batch(at.batch);
    for (auto [dim, index] : llvm::enumerate(item))
      if (!tensor.has(dim))
        batch[dim] = index;
    return SmallVector<Value>{body({batch, at.query, at.key}, carried.front())};
  })[0];
}

void LoopEmitter::emitGradient() {
  // The column view alone is there: a query's sum goes through it as well.
  auto getG = [&](Point at) {
    return getScoreGradient(at, getProbability(at, readLse(at)));
  };
  auto scaled = [&](Value sum) {
    return arith::MulFOp::create(e.b, e.loc, sum, getConstant(attention.scale));
  };
  if (outputs.lookup(attention.dq.tensor)) {
    forRows(attention.dq, attention.getQueries(), [&](Point row) {
      e.loop(attention.getFeatures(), {}, [&](Index feature, ValueRange) {
        Value zero = getConstant(0);
        Value dq =
            e.loop(attention.getKeys(), zero, [&](Index key, ValueRange sum) {
              // Whether a key is stored, only its line knows.
              Point at{row.batch, row.query, key};
              auto add = [&](Value so) {
                return multiplyAdd(e, getG(at), read(attention.k, at, feature),
                                   so);
              };
              if (!attention.pattern)
                return SmallVector<Value>{add(sum.front())};
              return SmallVector<Value>{
                  sumOver(key, sum.front(), [&](Index query, Value so) {
                    Value isRow = arith::CmpIOp::create(
                        e.b, e.loc, arith::CmpIPredicate::eq,
                        e.materialize(query), e.materialize(row.query));
                    return arith::SelectOp::create(e.b, e.loc, isRow, add(so),
                                                   so);
                  })};
            })[0];
        store(scaled(dq), attention.dq, row, feature);
        return SmallVector<Value>();
      });
    });
  }
  auto sumQueries = [&](const AttentionTensor &tensor, Point row,
                        llvm::function_ref<Value(Point, Value)> body) {
    return sumShared(tensor, row, getConstant(0), [&](Point point, Value so) {
      return sumOver(row.key, so, [&](Index query, Value so) {
        return body({point.batch, query, row.key}, so);
      });
    });
  };
  forRows(attention.dk, attention.getKeys(), [&](Point row) {
    if (outputs.lookup(attention.dk.tensor))
      e.loop(attention.getFeatures(), {}, [&](Index feature, ValueRange) {
        Value dk = sumQueries(attention.dk, row, [&](Point at, Value so) {
          return multiplyAdd(e, getG(at), read(attention.q, at, feature), so);
        });
        store(scaled(dk), attention.dk, row, feature);
        return SmallVector<Value>();
      });
    if (outputs.lookup(attention.dv.tensor))
      e.loop(attention.getValueFeatures(), {}, [&](Index feature, ValueRange) {
        Value dv = sumQueries(attention.dv, row, [&](Point at, Value so) {
          Value probability = applyFactor(at, getProbability(at, readLse(at)));
          return multiplyAdd(e, probability, read(attention.dy, at, feature),
                             so);
        });
        store(dv, attention.dv, row, feature);
        return SmallVector<Value>();
      });
  });
  if (!attention.dbias || !outputs.lookup(attention.dbias.tensor))
    return;
  forRows(attention.dbias, attention.getKeys(), [&](Point row) {
    auto at = [&](Index query) { return Point{row.batch, query, row.key}; };
    auto storeSum = [&](Index query) {
      Value sum =
          sumShared(attention.dbias, at(query), getConstant(0),
                    [&](Point point, Value so) {
                      return arith::AddFOp::create(e.b, e.loc, so, getG(point));
                    });
      store(sum, attention.dbias, at(query));
    };
    if (attention.pattern)
      e.loop(attention.getQueries(), {}, [&](Index query, ValueRange) {
        store(getConstant(0), attention.dbias, at(query));
        return SmallVector<Value>();
      });
    sumOver(row.key, getConstant(0), [&](Index query, Value so) {
      storeSum(query);
      return so;
    });
  });
}

void bsr::emitAttentionLoops(Evaluator &e, const Attention &attention,
                             const DenseMap<Value, Value> &outputs,
                             const PatternViews &patterns) {
  LoopEmitter emitter(e, attention, outputs, patterns);
  if (isa<AttentionOp>(attention.op))
    emitter.emitForward();
  else
    emitter.emitGradient();
}

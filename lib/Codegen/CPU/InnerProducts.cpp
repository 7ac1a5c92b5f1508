// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums over tokens of products of activations, vectors along tokens.

#include "InnerProducts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// `lane` as the first of `size` lanes of a vector.
static Index asVector(Index lane, int64_t size) {
  lane.lanes = size > 1;
  lane.align = size;
  return lane;
}

void InnerProducts::start(const Round &round, Index first) {
  firstFeature = first;
  if (groups)
    return startGroups(round);
  if (!strip)
    return;
  int64_t panel = e.target.panel();
  int64_t size = isSplit                     ? 2 * e.target.lanes
                 : tokens.sliceLanes % panel ? e.target.lanes
                                             : panel;
  llvm::SaveAndRestore width(e.width, size);
  tokens.forRuns(
      e, round, 0, size, tokens.sliceLanes / size, {},
      [&](const Tokens &at, ValueRange) {
        for (int64_t number = 0; number != features; ++number) {
          Index feature = first.plus(number);
          // What the next line begins with.
          e.prefetch(stationary,
                     tokens.activations.at(at.leading, feature.plus(features),
                                           at.lane),
                     size);
          Value value = e.read(stationary,
                               tokens.activations.at(at.leading, feature,
                                                     asVector(at.lane, size)));
          value = isSplit
                      ? splitLanes(e, value)
                      : e.convert(value, getElementTypeOrSelf(strip.getType()));
          e.store(value, strip,
                  {Index::constant(number), asVector(at.number, size)});
        }
        return SmallVector<Value>();
      });
}

SmallVector<Value> InnerProducts::multiply(const Round &round,
                                           ArrayRef<Index> rows, Index col,
                                           int64_t cols,
                                           ArrayRef<Index> prefetched,
                                           bool isTransposed, int64_t group) {
  int64_t numRows = rows.size(), numSums = numRows * cols;
  // Few sums are spread over several vectors of tokens.
  int64_t ways = std::max<int64_t>(1, CPUTarget::dotCols *
                                          e.target.tileVectors() / numSums);
  SmallVector<Value> totals;
  for (const Tiles &run : getVectors(
           tokens.sliceLanes, e.target.lanes * (hasPairs || isSplit ? 2 : 1))) {
    int64_t size = run.size, vectors = run.count;
    // A lane of sums takes two tokens.
    bool usesPairs = hasPairs && canZip(e.target, size / 2);
    // A panel in a row, its vectors summed up in turns.
    int64_t unroll =
        getDivisor(vectors, std::max(ways, e.target.panel() / size));
    int64_t spread = getDivisor(unroll, ways);
    llvm::SaveAndRestore width(e.width, size);
    auto emitRun = [&](const Tokens &at, ValueRange carried) {
      SmallVector<Value> next(carried);
      for (Index feature : prefetched)
        e.prefetch(streamed,
                   tokens.activations.at(at.leading, feature, at.lane),
                   size * unroll);
      for (int64_t step = 0; step != unroll; ++step) {
        Index lane = asVector(at.lane.plus(step * size), size);
        Index number = asVector(at.number.plus(step * size), size);
        auto read = [&](Value tensor, Index feature) {
          Value tokensOf =
              e.read(tensor, tokens.activations.at(at.leading, feature, lane));
          return isSplit ? splitLanes(e, tokensOf) : tokensOf;
        };
        auto readHeld = [&](Index place) {
          return strip
                     ? e.load(strip, {place, number})
                     : read(stationary, e.multiplyAdd(place, 1, firstFeature));
        };
        int64_t half = 0;
        auto getHalf = [&](Value x) -> Value {
          return isSplit ? vector::ExtractStridedSliceOp::create(
                               e.b, e.loc, x, half * size / 2, size / 2, 1)
                         : x;
        };
        auto add = [&](int64_t i, int64_t j, Value x, Value y) {
          int64_t entry = isTransposed ? j * numRows + i : i * cols + j;
          Value &sum = next[entry * spread + step % spread];
          sum = usesPairs ? addNeighbours(e, x, y, sum)
                          : multiplyAdd(e, getHalf(x), getHalf(y), sum);
        };
        // The shorter side stays in registers.
        SmallVector<Value> factors;
        if (numRows <= cols)
          for (Index row : rows)
            factors.push_back(read(streamed, row));
        else
          for (int64_t j = 0; j != cols; ++j)
            factors.push_back(readHeld(col.plus(j)));
        for (; half != (isSplit ? 2 : 1); ++half) {
          if (numRows <= cols)
            for (int64_t j = 0; j != cols; ++j) {
              Value factor = readHeld(col.plus(j));
              for (int64_t i = 0; i != numRows; ++i)
                add(i, j, factors[i], factor);
            }
          else
            for (int64_t i = 0; i != numRows; ++i) {
              Value factor = read(streamed, rows[i]);
              for (int64_t j = 0; j != cols; ++j)
                add(i, j, factor, factors[j]);
            }
        }
      }
      return next;
    };
    SmallVector<Value> zeros;
    {
      llvm::SaveAndRestore width(e.width,
                                 usesPairs || isSplit ? size / 2 : size);
      zeros = getZeros(e, sumType, numSums * spread);
    }
    SmallVector<Value> sums = tokens.forRuns(e, round, run.base, size * unroll,
                                             vectors / unroll, zeros, emitRun);
    SmallVector<Value> merged;
    for (int64_t number = 0; number != numSums; ++number) {
      Value sum = sums[number * spread];
      for (int64_t way = 1; way != spread; ++way)
        sum =
            arith::AddFOp::create(e.b, e.loc, sum, sums[number * spread + way]);
      merged.push_back(sum);
    }
    for (int64_t first = 0; first != numSums; first += group) {
      Value sum = e.sumLanes(ArrayRef(merged).slice(first, group));
      if (!run.base) {
        totals.push_back(sum);
        continue;
      }
      Value &total = totals[first / group];
      total = arith::AddFOp::create(e.b, e.loc, total, sum);
    }
  }
  return totals;
}

//===----------------------------------------------------------------------===//
// Grouped strips
//===----------------------------------------------------------------------===//

void InnerProducts::allocateGroups(int64_t tiles, bool areTransposed) {
  strip = e.allocate({features * tokens.size()}, sumType);
  groups = features / stripVectors;
  groupTokens = e.target.lanes / groups;
  isTransposed = areTransposed;
  adjacent = isTransposed ? groupTokens / CPUTarget::dotCols : stripVectors;
  share = std::max<int64_t>(1, features / tiles);
}

Index InnerProducts::getStripPlace(Index token, int64_t vector) const {
  return asVector(e.multiplyAdd(token.scalar(), features,
                                Index::constant(vector * e.target.lanes)),
                  e.target.lanes);
}

void InnerProducts::startGroups(const Round &round) {
  int64_t lanes = e.target.lanes;
  llvm::SaveAndRestore width(e.width, lanes);
  tokens.forRuns(
      e, round, 0, lanes, tokens.sliceLanes / lanes, {},
      [&](const Tokens &at, ValueRange) {
        for (int64_t vector = 0; vector != stripVectors; ++vector) {
          SmallVector<Value> rows;
          for (int64_t group = 0; group != groups; ++group) {
            int64_t feature = (vector / adjacent * groups + group) * adjacent +
                              vector % adjacent;
            rows.push_back(e.read(
                stationary,
                tokens.activations.at(at.leading, firstFeature.plus(feature),
                                      asVector(at.lane, lanes))));
          }
          for (auto [number, row] : llvm::enumerate(e.transpose(rows)))
            e.store(
                row, strip,
                getStripPlace(at.number.plus(number * groupTokens), vector));
        }
        return SmallVector<Value>();
      });
}

SmallVector<Value> InnerProducts::multiplyGroups(const Round &round,
                                                 ArrayRef<Index> rows,
                                                 ArrayRef<Index> prefetched,
                                                 Index tile) {
  int64_t lanes = e.target.lanes, panel = e.target.panel();
  int64_t size = tokens.sliceLanes % panel ? lanes : panel;
  // As many multiply-adds of a row as a panel has vectors.
  int64_t step =
      lanes *
      getDivisor(size / lanes, std::max<int64_t>(1, stripVectors / groups));
  SmallVector<int64_t> copies;
  for (int64_t lane = 0; lane != lanes; ++lane)
    copies.push_back(lane % groupTokens);
  SmallVector<Index> next;
  for (int64_t i = 0; i != share; ++i) {
    Index number = e.multiplyAdd(tile, share, Index::constant(i));
    next.push_back(e.multiplyAdd(e.split(number, features).second, 1,
                                 firstFeature.plus(features)));
  }
  auto readRow = [&](const Tokens &at, Index row, Index lane) -> Value {
    llvm::SaveAndRestore width(e.width, groupTokens);
    Value value =
        e.read(streamed, tokens.activations.at(at.leading, row,
                                               asVector(lane, groupTokens)));
    if (groupTokens == lanes)
      return value;
    return vector::ShuffleOp::create(e.b, e.loc, value, value, copies);
  };
  auto emitStep = [&](const Tokens &at, Index number, ValueRange carried) {
    SmallVector<Value> sums(carried);
    Index lane = e.multiplyAdd(number, step, at.lane);
    Index token = e.multiplyAdd(number, step, at.number);
    for (Index feature : prefetched)
      e.prefetch(streamed, tokens.activations.at(at.leading, feature, lane),
                 step);
    for (Index feature : next)
      e.prefetch(stationary, tokens.activations.at(at.leading, feature, lane),
                 step);
    for (int64_t first = 0; first != step; first += groupTokens) {
      SmallVector<Value> factors;
      for (int64_t vector = 0; vector != stripVectors; ++vector)
        factors.push_back(
            e.load(strip, getStripPlace(token.plus(first), vector)));
      Value *sum = sums.begin();
      for (Index row : rows) {
        Value value = readRow(at, row, lane.plus(first));
        for (Value factor : factors) {
          *sum = multiplyAdd(e, value, factor, *sum);
          ++sum;
        }
      }
    }
    return sums;
  };
  llvm::SaveAndRestore width(e.width, lanes);
  return sumGroups(
      tokens.forRuns(e, round, 0, size, tokens.sliceLanes / size,
                     getZeros(e, sumType, rows.size() * stripVectors),
                     [&](const Tokens &at, ValueRange carried) {
                       return e.loop(size / step, carried,
                                     [&](Index number, ValueRange carried) {
                                       return emitStep(at, number, carried);
                                     });
                     }));
}

/// Adds up the lanes of `sums`, those of all vectors of a row side by side.
SmallVector<Value> InnerProducts::sumGroups(ArrayRef<Value> sums) {
  SmallVector<Value> totals;
  if (isTransposed) {
    for (int64_t first = 0; first != stripVectors; first += adjacent) {
      SmallVector<Value> values;
      for (int64_t vector = first; vector != first + adjacent; ++vector)
        for (size_t row = 0; row != sums.size(); row += stripVectors)
          values.push_back(sums[row + vector]);
      totals.push_back(e.sumLanes(values, groups));
    }
    return totals;
  }
  // Of each group, several rows have their sums side by side.
  SmallVector<int64_t> order;
  for (int64_t row = 0; row != groupTokens; row += stripVectors)
    for (int64_t group = 0; group != groups; ++group)
      for (int64_t vector = 0; vector != stripVectors; ++vector)
        order.push_back(group * groupTokens + row + vector);
  for (size_t first = 0; first != sums.size(); first += groupTokens) {
    Value total = e.sumLanes(sums.slice(first, groupTokens), groups);
    totals.push_back(
        vector::ShuffleOp::create(e.b, e.loc, total, total, order));
  }
  return totals;
}

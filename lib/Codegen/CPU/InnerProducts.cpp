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
        int64_t part = 0;
        auto getPart = [&](Value x) -> Value {
          return isSplit ? vector::ExtractStridedSliceOp::create(
                               e.b, e.loc, x, part * size / 2, size / 2, 1)
                         : x;
        };
        auto add = [&](int64_t i, int64_t j, Value x, Value y) {
          int64_t entry = isTransposed ? j * numRows + i : i * cols + j;
          Value &sum = next[entry * spread + step % spread];
          sum = usesPairs ? addNeighbours(e, x, y, sum)
                          : multiplyAdd(e, getPart(x), getPart(y), sum);
        };
        // The shorter side stays in registers.
        SmallVector<Value> factors;
        if (numRows <= cols)
          for (Index row : rows)
            factors.push_back(read(streamed, row));
        else
          for (int64_t j = 0; j != cols; ++j)
            factors.push_back(readHeld(col.plus(j)));
        for (; part != (isSplit ? 2 : 1); ++part) {
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
      Value part = e.sumLanes(ArrayRef(merged).slice(first, group));
      if (!run.base) {
        totals.push_back(part);
        continue;
      }
      Value &total = totals[first / group];
      total = arith::AddFOp::create(e.b, e.loc, total, part);
    }
  }
  return totals;
}

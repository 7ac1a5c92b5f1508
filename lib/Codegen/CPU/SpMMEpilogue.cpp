// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Epilogues of a bsr.spmm that gathers, and squares of its sums.

#include "SpMMEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// The share of `step`, counted from the tile's first block on, of what the
/// epilogue reads and writes of `line`.
void SpMMEmitter::prefetchStreams(const Line &line, const Tile &tile,
                                  Index step) {
  for (auto [row, lane] : getStreamed(e, tile.number, step))
    for (const Stream &stream : streams)
      e.prefetchMemory(
          stream.memref,
          activations.at(line.leading,
                         e.multiplyAdd(line.number, outBlock, row),
                         e.multiplyAdd(lane, 1, line.lanes.front().scalar())),
          1, stream.isWritten);
}

/// The share of a block, number `block` of the view, of the lines of memory
/// that are written when the sums of all lines of a group are transposed. They
/// are far, and as many at once as there are tokens would wait for each other.
void SpMMEmitter::prefetchResults(const Line &line, const Tile &tile,
                                  Index block) {
  int64_t parts = halves ? 2 : 1, numTiles = 0;
  for (const Tiles &group : tiles)
    numTiles += group.count;
  int64_t mean = std::max<int64_t>(1, pattern.getSlots() / lines);
  int64_t count = panels * panel, all = together * parts * numTiles * mean;
  int64_t share = llvm::divideCeil(count, all);
  Index number = e.multiplyAdd(line.inGroup, parts, Index::constant(line.half));
  number = e.multiplyAdd(number, numTiles, tile.number);
  Value inLine =
      arith::SubIOp::create(e.b, e.loc, e.materialize(block), line.low);
  number = e.multiplyAdd(number, mean, Index::of(inLine));
  // Lines with more blocks than the mean fetch the last ones again. One
  // comparison for all: LLVM would make a vector of as many as there are.
  Index first = e.multiplyAdd(number, share, Index::constant(0));
  first = Index::of(arith::MinUIOp::create(e.b, e.loc, e.materialize(first),
                                           e.constant(count - share)));
  Index feature = e.multiplyAdd(line.number, outBlock, Index::constant(0));
  Index lane = line.lanes.front().scalar().plus(-line.half * e.width);
  for (int64_t token : llvm::seq(share))
    epilogue.prefetch(activations.at(line.leading, feature,
                                     e.multiplyAdd(first, 1, lane.plus(token))),
                      outBlock);
}

/// The index of the sums of vector `vector` at `feature`, row `row` of `group`,
/// at `lane`, which is the lane `within` of the vector. An epilogue finds there
/// what no buffer has.
SmallVector<Index> SpMMEmitter::findSums(const Line &group, Index feature,
                                         Index row, int64_t vector, Index lane,
                                         Index within) {
  SmallVector<Index> at = activations.at(group.leading, feature, lane);
  if (own) {
    int64_t count = group.lanes.size();
    Index place = e.multiplyAdd(row, count, Index::constant(vector));
    e.remember(op.getY(), at, e.load(own, {place, within}));
  }
  return at;
}

/// `number` is that of the first vector.
void SpMMEmitter::emitEpilogue(const Line &group, Index number) {
  if (epilogue.row)
    e.loop(together * outBlock, {}, [&](Index row, ValueRange) {
      Index feature = e.multiplyAdd(group.number, together * outBlock, row);
      for (auto [vector, lane] : llvm::enumerate(group.lanes)) {
        Index within = Index::constant(0);
        within.lanes = e.width > 1;
        within.align = e.width;
        epilogue.row(findSums(group, feature, row, vector, lane, within),
                     number.plus(vector));
      }
      return SmallVector<Value>();
    });
  if (epilogue.square)
    emitSquares(group);
}

/// Squares of a vector's lanes and as many features, one behind the other.
void SpMMEmitter::emitSquares(const Line &group) {
  int64_t features = Epilogue::squareFeatures, vectorLanes = e.width;
  int64_t size = std::min({vectorLanes, e.target.lanes, features});
  e.loop(together * outBlock / features, {}, [&](Index square, ValueRange) {
    Index row = e.multiplyAdd(square, features, Index::constant(0));
    Index feature = e.multiplyAdd(group.number, together * outBlock, row);
    for (size_t vector : llvm::seq(group.lanes.size()))
      e.loop(vectorLanes / size, {}, [&](Index part, ValueRange) {
        llvm::SaveAndRestore width(e.width, size);
        auto getPart = [&](Index first) {
          Index lane = e.multiplyAdd(part, size, first.scalar());
          lane.lanes = size > 1;
          lane.align = size;
          return lane;
        };
        Index low = getPart(group.lanes[vector]);
        Index within = getPart(Index::constant(0));
        SmallVector<SmallVector<Index>> places;
        for (int64_t next : llvm::seq(features))
          places.push_back(findSums(group, feature.plus(next), row.plus(next),
                                    vector, low, within));
        epilogue.square(places.front());
        return SmallVector<Value>();
      });
    return SmallVector<Value>();
  });
}

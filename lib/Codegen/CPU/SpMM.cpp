// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.spmm.

#include "SpMMEmitter.h"
#include "TileProducts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Multiply-adds in a step over blocks of one row in order: one block has few.
static constexpr int64_t maxMultiplyAdds = 32;

/// The place of sum `number` of a tile from feature `first` of `line` on.
SmallVector<Index> SpMMEmitter::getOutPlace(const Line &line, Index first,
                                            int64_t number) {
  int64_t count = line.lanes.size();
  if (own) {
    Index lane = Index::constant(line.half * e.width);
    lane.lanes = e.width > 1;
    lane.align = e.width;
    Index row = e.multiplyAdd(line.inGroup, outBlock, first);
    return {e.multiplyAdd(row, count, Index::constant(number)), lane};
  }
  Index feature =
      e.multiplyAdd(line.number, outBlock, first.plus(number / count));
  return activations.at(line.leading, feature, line.lanes[number % count]);
}

/// Where this sum is between k-blocks.
SmallVector<Index> SpMMEmitter::getSumPlace(const Line &line, Index first,
                                            int64_t number) {
  if (!total)
    return getOutPlace(line, first, number);
  Index lane = Index::constant(0);
  lane.lanes = e.width > 1;
  Index sum = e.multiplyAdd(first, line.lanes.size(), Index::constant(number));
  return {sum, lane};
}

/// Entry (row, col) of a block in `wide`.
Index SpMMEmitter::getEntry(Index row, Index col) {
  Index entry = e.multiplyAdd(row, pattern.getBlockCols(), col);
  entry.lanes = col.lanes;
  return entry;
}

/// Where `wide` has the pair of `feature`, which is even, and the next one.
Index SpMMEmitter::getPacked(Index feature, Index output) {
  return e.multiplyAdd(feature, outBlock,
                       e.multiplyAdd(output, 2, Index::constant(0)));
}

/// What multiplies `feature` of a block in the sums of `output`.
Value SpMMEmitter::readWeight(const Block &block, Index feature, Index output) {
  if (isPacked) {
    auto [pair, within] = e.split(feature, 2);
    Index even = e.multiplyAdd(pair, 2, Index::constant(0));
    return e.load(wide, {block.inKBlock,
                         e.multiplyAdd(getPacked(even, output), 1, within)});
  }
  Index row = feature, col = output;
  if (op.getTranspose())
    std::swap(row, col);
  if (ordered)
    return e.load(ordered, {block.number, row, col});
  return wide ? e.load(wide, {block.inKBlock, getEntry(row, col)})
              : e.read(op.getValues(), {block.slot, row, col});
}

/// What multiplies `feature`, which is even, and the next one.
Value SpMMEmitter::readPair(const Block &block, Index feature, Index output) {
  llvm::SaveAndRestore width(e.width, int64_t{2});
  Index place = isPacked ? getPacked(feature, output)
                : wide   ? getEntry(output, feature)
                         : feature;
  place.lanes = true;
  return wide ? e.load(wide, {block.inKBlock, place})
              : e.read(op.getValues(), {block.slot, output, place});
}

/// Converts or packs the values of a k-block.
void SpMMEmitter::prepare(Value from, Value to) {
  e.loop(from, to, 1, {}, [&](Value block, ValueRange) {
    Index slot = Index::of(loadIndex(e, view.slot, Index::of(block)));
    Index number = Index::of(arith::SubIOp::create(e.b, e.loc, block, from));
    isPacked ? pack(slot, number) : copy(slot, number);
    return SmallVector<Value>();
  });
}

/// Vector `vector` of the row of `feature` of a block in `rows`.
SmallVector<Index> SpMMEmitter::getRowPlace(const Block &block, Index feature,
                                            int64_t vector) {
  Index lane = Index::constant(vector * e.width);
  lane.lanes = e.width > 1;
  lane.align = e.width;
  return {e.multiplyAdd(block.inKBlock, inBlock, feature), lane};
}

/// Values as they lie in a block, in the type that products take.
void SpMMEmitter::copy(Index slot, Index number) {
  Type type = getElementTypeOrSelf(wide.getType());
  e.loop(pattern.getBlockRows(), {}, [&](Index row, ValueRange) {
    e.forLanes(
        e.constant(0), pattern.getBlockCols(), e.target.lanes, [&](Index col) {
          Value value = e.read(op.getValues(), {slot, row, col});
          e.store(e.convert(value, type), wide, {number, getEntry(row, col)});
        });
    return SmallVector<Value>();
  });
}

/// Values of two rows of a block, side by side for each output.
void SpMMEmitter::pack(Index slot, Index number) {
  e.loop(inBlock / 2, {}, [&](Index pair, ValueRange) {
    e.forLanes(e.constant(0), outBlock, e.target.lanes, [&](Index output) {
      Index even = e.multiplyAdd(pair, 2, Index::constant(0));
      auto read = [&](Index feature) {
        Value value = e.read(op.getValues(), {slot, feature, output});
        return e.width == 1 ? vector::BroadcastOp::create(
                                  e.b, e.loc,
                                  VectorType::get({1}, value.getType()), value)
                                  .getResult()
                            : value;
      };
      Value low = read(even), high = read(even.plus(1));
      Value both = vector::InterleaveOp::create(e.b, e.loc, low, high);
      Index place = getPacked(even, output.scalar());
      place.lanes = true;
      llvm::SaveAndRestore width(e.width, 2 * e.width);
      e.store(both, wide, {number, place});
    });
    return SmallVector<Value>();
  });
}

/// The row of `feature` of the blocks at `position`, as sums take it.
Value SpMMEmitter::readRow(const Line &line, const Index &position,
                           Index feature, Index lane) {
  feature = e.multiplyAdd(position, inBlock, feature);
  Value row =
      windows.hasTable()
          ? windows.read(feature, lane)
          : e.read(op.getX(), activations.at(line.leading, feature, lane));
  return usesSplit() ? splitLanes(e, row)
         : rows      ? e.convert(row, sumType)
                     : row;
}

Value SpMMEmitter::readX(const Line &line, const Tile &tile, const Block &block,
                         Index feature, int64_t vector) {
  if (rows && !tile.isFirst)
    return e.load(rows, getRowPlace(block, feature, vector));
  Value row = readRow(line, block.position, feature, line.lanes[vector]);
  if (rows)
    e.store(row, rows, getRowPlace(block, feature, vector));
  return row;
}

void SpMMEmitter::prefetchRow(const Line &line, const Index &position,
                              Index feature) {
  for (Index lane : line.lanes)
    e.prefetch(op.getX(),
               activations.at(line.leading,
                              e.multiplyAdd(position, inBlock, feature),
                              lane.scalar()),
               e.width);
}

/// Adds what `feature` of a block contributes to `sums`.
void SpMMEmitter::multiply(const Line &line, const Tile &tile,
                           const Block &block, Index feature,
                           MutableArrayRef<Value> sums) {
  SmallVector<Value> xs;
  for (int64_t vector : llvm::seq(line.lanes.size()))
    xs.push_back(readX(line, tile, block, feature, vector));
  for (int64_t row = 0; row != tile.rows; ++row) {
    Value w = readWeight(block, feature, tile.first.plus(row));
    for (auto [vector, x] : llvm::enumerate(xs)) {
      Value &sum = sums[row * line.lanes.size() + vector];
      sum = multiplyAdd(e, w, x, sum);
    }
  }
}

/// Adds what `feature` of a block, which is even, and the next one contribute.
void SpMMEmitter::multiplyPair(const Line &line, const Tile &tile,
                               const Block &block, Index feature,
                               MutableArrayRef<Value> sums) {
  SmallVector<SmallVector<Value>> xs;
  for (int64_t vector : llvm::seq(line.lanes.size()))
    xs.push_back(zip(e, readX(line, tile, block, feature, vector),
                     readX(line, tile, block, feature.plus(1), vector)));
  for (int64_t row = 0; row != tile.rows; ++row) {
    Value pair = readPair(block, feature, tile.first.plus(row));
    for (auto [vector, x] : llvm::enumerate(xs)) {
      Value &sum = sums[row * line.lanes.size() + vector];
      sum = addPairs(e, x, pair, sum);
    }
  }
}

/// Block `i` of the `count` from `first` on, by features or pairs of them.
SmallVector<Value> SpMMEmitter::emitBlock(const Line &line, const Tile &tile,
                                          Value low, Value first, int64_t i,
                                          int64_t count, ValueRange outer) {
  Index number = Index::of(first).plus(i);
  Block block;
  block.slot = Index::of(loadIndex(e, view.slot, number));
  block.position = Index::of(loadIndex(e, view.idx, number));
  Index nextSlot, nextPosition;
  block.number = number;
  if (epilogue.prefetch && isFull)
    prefetchResults(line, tile, number);
  if (wide || rows)
    block.inKBlock = Index::of(
        arith::SubIOp::create(e.b, e.loc, e.materialize(number), low));
  if (tile.prefetches) {
    // The last of the blocks that are prefetched is one of the pattern.
    Index last = getNextBlock(e, first, pattern, ahead + count - 1);
    Index next = last.plus(i + 1 - count);
    nextSlot = Index::of(loadIndex(e, view.slot, next));
    nextPosition = Index::of(loadIndex(e, view.idx, next));
  }
  return e.loop(inBlock / unroll, outer, [&](Index step, ValueRange carried) {
    SmallVector<Value> sums(carried);
    Index from = e.multiplyAdd(step, unroll, Index::constant(0));
    if (!tile.isFirst && !streams.empty() && e.width == panel && panels == 1)
      prefetchStreams(
          line, tile,
          e.multiplyAdd(Index::of(arith::SubIOp::create(
                            e.b, e.loc, e.materialize(number), low)),
                        inBlock / unroll, step));
    if (tile.prefetches && (!wide || rows) && !ordered)
      e.prefetch(op.getValues(),
                 {nextSlot, Index::constant(0),
                  e.multiplyAdd(from, outBlock, Index::constant(0))},
                 unroll * outBlock);
    int64_t together = usesPairs() ? 2 : 1;
    for (int64_t i = 0; i != unroll; i += together) {
      Index k = from.plus(i);
      if (tile.prefetches)
        for (int64_t next : llvm::seq(together))
          prefetchRow(line, nextPosition, k.plus(next));
      if (together == 2)
        multiplyPair(line, tile, block, k, sums);
      else
        multiply(line, tile, block, k, sums);
    }
    return sums;
  });
}

/// The blocks from `from` to `to` of a tile, `count` in a step.
SmallVector<Value> SpMMEmitter::emitBlocks(const Line &line, const Tile &tile,
                                           Value low, Value from, Value to,
                                           int64_t count, ValueRange inits) {
  return e.loop(from, to, count, inits, [&](Value first, ValueRange carried) {
    SmallVector<Value> sums(carried);
    for (int64_t i : llvm::seq(count))
      sums = emitBlock(line, tile, low, first, i, count, sums);
    return sums;
  });
}

/// A register tile over the blocks from `low` to `high`.
void SpMMEmitter::emitTile(const Line &line, const Tile &tile, Value low,
                           Value high, ValueRange inits) {
  Value whole = low;
  SmallVector<Value> sums(inits);
  int64_t vectors =
      line.lanes.size() * std::max<int64_t>(1, e.width / e.target.lanes);
  int64_t together = isOrdered ? maxMultiplyAdds / (tile.rows * vectors) : 1;
  if (together > 1) {
    Value count = arith::SubIOp::create(e.b, e.loc, high, low);
    Value rest =
        arith::RemUIOp::create(e.b, e.loc, count, e.constant(together));
    whole = arith::SubIOp::create(e.b, e.loc, high, rest);
    sums = emitBlocks(line, tile, low, low, whole, together, sums);
  }
  sums = emitBlocks(line, tile, low, whole, high, 1, sums);
  for (auto [number, sum] : llvm::enumerate(sums)) {
    if (total) {
      e.store(sum, total, getSumPlace(line, tile.first, number));
      continue;
    }
    e.store(round(sum), own ? own : output,
            getOutPlace(line, tile.first, number));
  }
}

void SpMMEmitter::forTiles(llvm::function_ref<void(const Tile &)> body) {
  int64_t before = 0;
  for (const Tiles &group : tiles) {
    e.loop(group.count, {}, [&](Index tile, ValueRange) {
      body({e.multiplyAdd(tile, group.size, Index::constant(group.base)),
            group.size, prefetches && (rereads || group.base == 0),
            group.base == 0, e.multiplyAdd(tile, 1, Index::constant(before))});
      return SmallVector<Value>();
    });
    before += group.count;
  }
}

/// What the sums of a tile start from: the bias, or zeros.
SmallVector<Value> SpMMEmitter::getStart(const Line &line, const Tile &tile) {
  int64_t count = line.lanes.size();
  if (!op.getBias())
    return getZeros(e, sumType, tile.rows * count);
  SmallVector<Value> start;
  for (int64_t row = 0; row != tile.rows; ++row) {
    Index feature = e.multiplyAdd(line.number, outBlock, tile.first.plus(row));
    start.append(count, e.broadcast(e.convert(e.read(op.getBias(), {feature}),
                                              sumType)));
  }
  return start;
}

/// All tiles of a line, which starts at `low`, over blocks `from` to `to`.
void SpMMEmitter::emitKBlock(const Line &line, Value low, Value from,
                             Value to) {
  Value isFirst =
      arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, from, low);
  if (wide)
    prepare(from, to);
  forTiles([&](const Tile &tile) {
    SmallVector<Value> inits;
    for (auto [number, start] : llvm::enumerate(getStart(line, tile)))
      inits.push_back(arith::SelectOp::create(
          e.b, e.loc, isFirst, start,
          e.load(total ? total
                 : own ? own
                       : output,
                 getSumPlace(line, tile.first, number))));
    emitTile(line, tile, from, to, inits);
  });
}

void SpMMEmitter::roundSums(const Line &line) {
  e.loop(outBlock, {}, [&](Index row, ValueRange) {
    for (int64_t number : llvm::seq(line.lanes.size())) {
      Value sum = e.load(total, getSumPlace(line, row, number));
      e.store(round(sum), own ? own : output, getOutPlace(line, row, number));
    }
    return SmallVector<Value>();
  });
}

/// The line's share of the rows that the next tile of lanes needs: nobody else
/// fetches them, since blocks are anywhere.
void SpMMEmitter::prefetchNext(const Line &line) {
  for (int64_t row : llvm::seq(rowsOfNext))
    for (Index lane : line.lanes)
      e.prefetch(op.getX(),
                 activations.at(line.leading,
                                e.multiplyAdd(line.number, rowsOfNext,
                                              Index::constant(row)),
                                lane.scalar().plus(panels * panel)),
                 e.width);
}

void SpMMEmitter::emitLine(const Line &given) {
  Line line = given;
  Value low = line.low = loadIndex(e, view.ptr, line.number);
  Value high = loadIndex(e, view.ptr, line.number.plus(1));
  if (e.width == panel)
    prefetchNext(line);
  if (!blocks)
    return forTiles([&](const Tile &tile) {
      emitTile(line, tile, low, high, getStart(line, tile));
    });
  // A line without blocks is a k-block as well: it writes what sums start from.
  Value end = arith::MaxUIOp::create(e.b, e.loc, high,
                                     e.materialize(Index::of(low).plus(1)));
  e.loop(low, end, blocks, {}, [&](Value from, ValueRange) {
    Value to = arith::MinUIOp::create(
        e.b, e.loc, e.materialize(Index::of(from).plus(blocks)), high);
    emitKBlock(line, low, from, to);
    return SmallVector<Value>();
  });
  if (total)
    roundSums(line);
}

/// A line of full panels, or of what is left of tokens.
void SpMMEmitter::emitPanels(const Line &line) {
  if (e.width != panel || !halves)
    return emitLine(line);
  prefetchNext(line);
  llvm::SaveAndRestore width(e.width, panel / 2);
  for (int64_t half : {0, 1}) {
    Index lane = line.lanes.front().plus(half * e.width);
    lane.lanes = e.width > 1;
    lane.align = e.width;
    emitLine({line.leading, line.number, lane, line.inGroup, half});
  }
}

/// The lines of `group`, which is counted in as many.
void SpMMEmitter::emitLines(const Line &group) {
  e.loop(together, {}, [&](Index number, ValueRange) {
    emitPanels({group.leading, e.multiplyAdd(group.number, together, number),
                group.lanes, number});
    return SmallVector<Value>();
  });
}

/// Work items of `tiles` tiles of lanes; `forLanes` calls its body with the
/// vectors of a tile and the number of the first.
void SpMMEmitter::emitItems(
    int64_t tiles, llvm::function_ref<void(Index, LaneBody)> forLanes) {
  SmallVector<int64_t> extents(activations.leading);
  int64_t others = tiles * llvm::product_of(extents);
  int64_t groups = lines / together, parts = getParts(groups, others);
  extents.append({tiles, parts});
  e.forall(extents, [&](ArrayRef<Index> at) {
    if (blocks && (isPacked || isWidened))
      wide = e.allocate({blocks, inBlock * outBlock},
                        hasPairs ? e.b.getBF16Type() : sumType);
    if (blocks && isRowWidened)
      rows = e.allocate({blocks * inBlock, panels * panel}, sumType);
    if (blocks && (isRounded || hasPairs || isSplit))
      total = e.allocate({outBlock * panels, panel}, sumType);
    if (!output)
      own = e.allocate({together * outBlock * panels, panel}, outType);
    auto emitGroup = [&](Index group) {
      forLanes(at[at.size() - 2], [&](ArrayRef<Index> lanes, Index number) {
        emitLines({at.drop_back(2), group, lanes});
        emitEpilogue({at.drop_back(2), group, lanes}, number);
      });
    };
    forLines(e, view, groups, parts, at.back(), emitGroup, together);
  });
}

/// Full register tiles of lanes, then the rest, or just that: powers of two.
void SpMMEmitter::emit(bool isRest) {
  if (ordered)
    emitOrderedValues(e, op, view, ordered);
  int64_t tokens = activations.tokens, tile = panels * panel;
  if (int64_t tiles = isRest ? 0 : tokens / tile)
    emitItems(tiles, [&](Index item, LaneBody body) {
      llvm::SaveAndRestore width(e.width, panel);
      llvm::SaveAndRestore full(isFull, true);
      SmallVector<Index> lanes;
      for (int64_t number = 0; number != panels; ++number) {
        Index lane = e.multiplyAdd(item, tile, Index::constant(number * panel));
        lane.lanes = panel > 1;
        lane.align = panel;
        lanes.push_back(lane);
      }
      body(lanes, e.multiplyAdd(item, panels, Index::constant(0)));
    });
  if (tokens % tile)
    emitItems(1, [&](Index, LaneBody body) {
      int64_t first = tokens - tokens % tile, number = first / panel;
      for (const Tiles &vectors : getVectors(tokens % tile, panel)) {
        llvm::SaveAndRestore width(e.width, vectors.size);
        for (int64_t at : llvm::seq(vectors.count)) {
          Value base = e.constant(first + vectors.base + at * vectors.size);
          Index lane = Index::of(base, vectors.size > 1, vectors.size);
          e.scope([&] { body(lane, Index::constant(number++)); });
        }
      }
    });
}

void cpu::emitGatheredSpMM(Emitter &e, const GatheredSpMM &kernel,
                           const ProductSchedule &schedule) {
  GatheredSpMM rest(kernel);
  bool isTiled = emitTiledSpMM(e, kernel);
  if (isTiled)
    rest.ordered = Value();
  SpMMEmitter(e, rest, schedule).emit(/*isRest=*/isTiled);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for products of two dense tensors whose vectors run along the
// result. The loops around a register tile are those of Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication" (2008).

#include "DenseProducts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/SaveAndRestore.h"
#include <numeric>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Steps of a reduction that a register tile takes in a row.
static constexpr int64_t unrollFactor = 4;
BroadcastProduct::BroadcastProduct(Emitter &e, const Contraction &c,
                                   Value output, Epilogue epilogue,
                                   Value rowMemory)
    : e(e), c(c), output(output), epilogue(epilogue), rowMemory(rowMemory),
      summands(c.reduced) {
  for (unsigned dim : c.outer)
    (c.isIn(1 - c.vectors, dim) ? batch : columns).push_back(dim);
  hasPairs = e.target.hasPairDots && c.isProductOfBF16();
  int64_t total = c.getSize(summands);
  // Rows whose summands lie apart would miss the first-level cache.
  isStreamed = e.target.streamsFromSecond() &&
               (rowMemory || llvm::any_of(c.reduced, [&](unsigned dim) {
                  return c.isLast(1 - c.vectors, dim);
                }));
  int64_t bytes = isStreamed ? e.target.rowBytes() : e.target.streamedBytes();
  int64_t fitting = bytes / ((hasPairs ? 2 : 4) * e.target.panel());
  hasKBlocks = total > (isStreamed ? fitting : 2 * fitting);
  if (hasKBlocks) {
    unsigned longest = summands.front();
    for (unsigned dim : summands)
      if (c.ranges[dim] >= c.ranges[longest])
        longest = dim;
    if (c.across)
      longest = *c.across;
    llvm::erase(summands, longest);
    summands.push_back(longest);
  }
  int64_t extent = c.ranges[summands.back()];
  hasPairs &= extent % 2 == 0;
  unroll = hasPairs ? 2 * getDivisor(extent / 2, unrollFactor / 2)
                    : getDivisor(extent, unrollFactor);
  length = extent;
  if (hasKBlocks) {
    length = std::max<int64_t>(1, fitting * extent / total);
    // Of nearly equal lengths: where each begins, sums are read again.
    if (isStreamed)
      length = llvm::divideCeil(extent, llvm::divideCeil(extent, length));
    // Whole vectors, unless there are many other summands.
    bool isWhole =
        c.across || (extent % e.target.lanes == 0 && length >= e.target.lanes);
    length = llvm::alignTo(length, isWhole ? e.target.lanes : unroll);
    // All k-blocks, and so the last one, are of whole steps.
    unroll = std::gcd(unroll, length);
  }
  numSummands = length * c.getSize(ArrayRef(summands).drop_back());
}

/// The number of the summand at `steps` of a k-block.
Index BroadcastProduct::getNumber(ArrayRef<Index> steps) {
  Index number = Index::constant(0);
  for (auto [dim, step] : llvm::zip_equal(summands, steps))
    number = e.multiplyAdd(
        number, dim == summands.back() ? length : c.ranges[dim], step);
  return number;
}

/// The number of the point `at` of the inner loops.
Index BroadcastProduct::getInner(ArrayRef<Index> at) {
  Index number = Index::constant(0);
  for (unsigned dim : c.inner)
    number = e.multiplyAdd(number, c.ranges[dim], at[dim]);
  return number;
}

/// The point `at` of the parallel loops, at `steps` of `kBlock`.
SmallVector<Index> BroadcastProduct::getPoint(ArrayRef<Index> at,
                                              ArrayRef<Index> steps,
                                              const KBlock &kBlock) {
  SmallVector<Index> point(at);
  for (auto [dim, step] : llvm::zip_equal(summands, steps))
    point[dim] = step;
  Index &last = point[summands.back()];
  last = e.multiplyAdd(Index::of(kBlock.from), 1, last);
  return point;
}

/// Adds `kBlock` to the sums of a tile of `rows` and `lanes` at `at`; `packed`
/// is the place of its rows there.
void BroadcastProduct::emitTile(ArrayRef<Index> at, const KBlock &kBlock,
                                const Item &item, const Rows &rows,
                                ArrayRef<Index> packed, const Lanes &lanes) {
  Value vectors = item.vectors;
  SmallVector<SmallVector<Index>> points(rows.tiles.size,
                                         SmallVector<Index>(at));
  SmallVector<Value> sums;
  for (auto [number, point] : llvm::enumerate(points)) {
    if (c.row)
      point[*c.row] = point[*c.row].plus(number);
    Value init = e.broadcast(e.read(c.init, c.getPlace(point)));
    if (kBlock.isFirst)
      init = arith::SelectOp::create(e.b, e.loc, kBlock.isFirst, init,
                                     e.load(output, c.getPlace(point)));
    sums.push_back(usesPairs() ? inOrderOfZip(e, init) : init);
  }
  auto addSummand = [&](ArrayRef<Index> steps, MutableArrayRef<Value> sums) {
    Index summand = getNumber(steps);
    SmallVector<Index> first = getPoint(at, steps, kBlock);
    for (auto [number, point] : llvm::enumerate(points)) {
      SmallVector<Index> loops(point);
      for (unsigned dim : summands)
        loops[dim] = first[dim];
      if (vectors && number == 0) {
        SmallVector<Index> entry = applyMap(getVectorMap(), loops);
        e.remember(getVectors(), entry,
                   e.load(vectors, getVectorPlace(lanes, summand)));
      }
      if (rows.packed) {
        SmallVector<Index> place = getRowPlace(rows, packed, summand, number);
        SmallVector<Index> entry = applyMap(getRowMap(), loops);
        e.remember(getRows(), entry, e.load(rows.packed, place));
      }
      sums[number] = e.broadcast(e.evaluate(c.op, loops, sums[number]).front());
    }
  };
  // A summand and the next one, of bf16.
  auto addPair = [&](ArrayRef<Index> steps, MutableArrayRef<Value> sums) {
    Index summand = getNumber(steps);
    SmallVector<Index> first = getPoint(at, steps, kBlock);
    auto readVectors = [&](int64_t number) {
      if (vectors)
        return e.load(vectors, getVectorPlace(lanes, summand.plus(number)));
      SmallVector<Index> loops(first);
      loops[summands.back()] = loops[summands.back()].plus(number);
      return e.read(getVectors(), applyMap(getVectorMap(), loops));
    };
    SmallVector<Value> xs = zip(e, readVectors(0), readVectors(1));
    for (auto [number, point] : llvm::enumerate(points)) {
      SmallVector<Index> loops(point);
      for (unsigned dim : summands)
        loops[dim] = first[dim];
      llvm::SaveAndRestore width(e.width, int64_t{2});
      Value pair;
      if (rows.packed) {
        SmallVector<Index> place = getRowPlace(rows, packed, summand, number);
        place.back().lanes = true;
        pair = e.load(rows.packed, place);
      } else {
        Index &last = loops[summands.back()];
        last.lanes = true;
        pair = e.read(getRows(), applyMap(getRowMap(), loops));
      }
      sums[number] = addPairs(e, xs, pair, sums[number]);
    }
  };
  SmallVector<int64_t> extents = c.getExtents(ArrayRef(summands).drop_back());
  sums = e.nest(extents, sums, [&](ArrayRef<Index> outer, ValueRange carried) {
    return e.loop(e.constant(0), kBlock.count, unroll, carried,
                  [&](Value iv, ValueRange carried) {
                    SmallVector<Value> next(carried);
                    SmallVector<Index> steps(outer);
                    steps.push_back(Index::of(iv));
                    int64_t together = usesPairs() ? 2 : 1;
                    for (int64_t i = 0; i != unroll; i += together) {
                      if (usesPairs())
                        addPair(steps, next);
                      else
                        addSummand(steps, next);
                      steps.back() = steps.back().plus(together);
                    }
                    return next;
                  });
  });
  for (auto [sum, point] : llvm::zip_equal(sums, points))
    e.store(usesPairs() ? unzip(e, sum) : sum, output, c.getPlace(point));
}

/// Emits the epilogue of the sums of a tile at `at`, if `kBlock` is the last;
/// `number` is that of its vectors.
void BroadcastProduct::emitEpilogue(ArrayRef<Index> at, const KBlock &kBlock,
                                    int64_t numRows, Index number) {
  auto emitRows = [&] {
    e.loop(numRows, {}, [&](Index row, ValueRange) {
      SmallVector<Index> point(at);
      if (c.row)
        point[*c.row] = e.multiplyAdd(point[*c.row], 1, row);
      epilogue(c.getPlace(point), number);
      return SmallVector<Value>();
    });
  };
  if (!kBlock.isLast)
    return emitRows();
  auto guard = scf::IfOp::create(e.b, e.loc, kBlock.isLast);
  e.scope([&] {
    e.b.setInsertionPointToStart(guard.thenBlock());
    emitRows();
  });
}

/// Runs `body` for all lanes of all columns of `item`, in order.
void BroadcastProduct::forColumns(
    const Item &item, const Columns &parts, const Tiles &lanes,
    llvm::function_ref<void(ArrayRef<Index> at, const Lanes &)> body) {
  int64_t panel = e.target.panel();
  e.loop(item.lowColumn, item.highColumn, 1, {}, [&](Value number, ValueRange) {
    e.nest(parts.getInner(), {}, [&](ArrayRef<Index> inner, ValueRange) {
      SmallVector<Index> numbers(item.leading);
      numbers.push_back(Index::of(number));
      llvm::append_range(numbers, inner);
      SmallVector<Index> at(item.at);
      for (auto [dim, number] : llvm::zip(columns, numbers))
        at[dim] = number;
      Lanes part{Index::constant(0), 0,
                 // Of the rest, in powers of two, each is a vector.
                 numbers.back().plus(lanes.base / panel)};
      if (isStreamed) {
        part.column = Index::of(
            arith::SubIOp::create(e.b, e.loc, number, item.lowColumn));
        for (auto [extent, i] : llvm::zip_equal(parts.getInner(), inner))
          part.column = e.multiplyAdd(part.column, extent, i);
      }
      Index lane =
          e.multiplyAdd(numbers.back(), panel, Index::constant(lanes.base));
      e.forLanes(e.materialize(lane), lanes.size, panel, [&](Index lane) {
        at[c.lanes] = lane;
        body(at, part);
        part.offset += e.width;
        part.number = part.number.plus(1);
      });
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
}

/// Adds `kBlock` to all sums of `item`.
void BroadcastProduct::emitKBlock(const Item &item, const Columns &parts,
                                  const Tiles &lanes, const KBlock &kBlock) {
  auto add = [&](ArrayRef<Index> at, Index first, const Rows &rows,
                 ArrayRef<Index> packed, const Lanes &part) {
    SmallVector<Index> point(at);
    if (c.row)
      point[*c.row] = first;
    emitTile(point, kBlock, item, rows, packed, part);
    if (epilogue)
      emitEpilogue(point, kBlock, rows.tiles.size, part.number);
  };
  auto forTiles = [&](const Rows &rows,
                      llvm::function_ref<void(Value, Index)> body) {
    e.loop(e.constant(0), rows.count, 1, {}, [&](Value tile, ValueRange) {
      body(tile, e.multiplyAdd(Index::of(tile), rows.tiles.size, rows.first));
      return SmallVector<Value>();
    });
  };
  if (!isStreamed) {
    for (const Rows &rows : item.rows)
      if (rows.packed)
        packRows(item.at, kBlock, rows);
    forColumns(item, parts, lanes, [&](ArrayRef<Index> at, const Lanes &part) {
      if (item.vectors)
        packVectors(at, kBlock, item.vectors, part);
      forPoints(e, c, c.inner, at, [&](ArrayRef<Index> at) {
        for (const Rows &rows : item.rows)
          forTiles(rows, [&](Value tile, Index first) {
            add(at, first, rows, {getInner(at), Index::of(tile)}, part);
          });
      });
    });
    return;
  }
  if (item.vectors)
    forColumns(item, parts, lanes, [&](ArrayRef<Index> at, const Lanes &part) {
      packVectors(at, kBlock, item.vectors, part);
    });
  // A tile of rows stays in the first-level cache for all columns.
  forPoints(e, c, c.inner, item.at, [&](ArrayRef<Index> inner) {
    for (const Rows &rows : item.rows)
      forTiles(rows, [&](Value tile, Index first) {
        SmallVector<Index> packed =
            getTilePlace(rows, first, Index::of(kBlock.from));
        if (rows.packed && !rowMemory)
          packTile(inner, kBlock, rows, tile, packed);
        forColumns(item, parts, lanes,
                   [&](ArrayRef<Index> at, const Lanes &part) {
                     SmallVector<Index> point(at);
                     for (unsigned dim : c.inner)
                       point[dim] = inner[dim];
                     add(point, first, rows, packed, part);
                   });
      });
  });
}

/// The rows of the work items of `block`, and memory for them.
SmallVector<BroadcastProduct::Rows>
BroadcastProduct::getRowsOf(Index block, const Division &division) {
  SmallVector<Rows> result;
  for (const Tiles &tiles : division.tiles) {
    Value count = e.constant(tiles.count);
    if (division.lastTiles != division.tiles.front().count) {
      int64_t total = (division.blocks - 1) * tiles.count + division.lastTiles;
      Value before =
          e.materialize(e.multiplyAdd(block, tiles.count, Index::constant(0)));
      Value rest = arith::SubIOp::create(e.b, e.loc, e.constant(total), before);
      count = arith::MinUIOp::create(e.b, e.loc, rest, count);
    }
    Value packed = rowMemory;
    if (division.packsRows && !rowMemory) {
      int64_t numInner = isStreamed ? 1 : c.getSize(c.inner);
      int64_t numTiles = isStreamed ? 1 : tiles.count;
      packed = e.allocate(
          hasPairs
              ? ArrayRef<int64_t>{numInner, numTiles, tiles.size, numSummands}
              : ArrayRef<int64_t>{numInner, numTiles, numSummands, tiles.size},
          getPackedType(1 - c.vectors));
    }
    Index first =
        e.multiplyAdd(block, division.height, Index::constant(tiles.base));
    result.push_back({tiles, first, count, packed});
  }
  return result;
}

/// Emits the work items of `lanes`.
void BroadcastProduct::emitItems(const Tiles &lanes, const Division &division) {
  if (rowMemory)
    packAllRows(division);
  const Columns &parts = division.columns;
  SmallVector<int64_t> extents = c.getExtents(batch);
  llvm::append_range(extents, parts.getLeading());
  extents.append({division.blocks, parts.getNumRuns()});
  e.forall(extents, [&](ArrayRef<Index> ivs) {
    Item item;
    item.at.assign(c.ranges.size(), Index::constant(0));
    for (auto [dim, iv] : llvm::zip(batch, ivs))
      item.at[dim] = iv;
    llvm::append_range(item.leading, ivs.slice(batch.size(), parts.numLeading));
    int64_t numColumns = parts.extents[parts.numLeading];
    item.lowColumn =
        e.materialize(e.multiplyAdd(ivs.back(), parts.run, Index::constant(0)));
    item.highColumn = arith::AddIOp::create(e.b, e.loc, item.lowColumn,
                                            e.constant(parts.run));
    if (numColumns % parts.run)
      item.highColumn = arith::MinUIOp::create(e.b, e.loc, item.highColumn,
                                               e.constant(numColumns));
    item.rows = getRowsOf(ivs[ivs.size() - 2], division);
    if (division.packsVectors)
      item.vectors = e.allocate({isStreamed ? parts.getNumPerItem() : 1,
                                 numSummands, e.target.panel()},
                                getPackedType(c.vectors));
    Value extent = e.constant(c.ranges[summands.back()]);
    if (!hasKBlocks)
      return emitKBlock(item, parts, lanes,
                        {e.constant(0), extent, Value(), Value()});
    e.loop(e.constant(0), extent, length, {}, [&](Value from, ValueRange) {
      Value rest = arith::SubIOp::create(e.b, e.loc, extent, from);
      Value count =
          arith::MinUIOp::create(e.b, e.loc, rest, e.constant(length));
      auto isEqual = [&](Value a, Value b) {
        return arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, a,
                                     b);
      };
      emitKBlock(
          item, parts, lanes,
          {from, count, isEqual(from, e.constant(0)), isEqual(count, rest)});
      return SmallVector<Value>();
    });
  });
}

void BroadcastProduct::emit() {
  SmallVector<Tiles, 2> rows =
      tileEvenly(c.row ? c.ranges[*c.row] : 1, CPUTarget::tileRows);
  for (const Tiles &lanes :
       tileWithRemainder(c.ranges[c.lanes], e.target.panel())) {
    if (std::optional<Division> division = divide(lanes.count, rows)) {
      emitItems(lanes, *division);
      continue;
    }
    for (const Tiles &tiles : rows)
      emitItems(lanes, *divide(lanes.count, tiles));
  }
}

void cpu::emitBroadcastProduct(Emitter &e, const Contraction &c, Value output,
                               Epilogue epilogue, Value rowMemory) {
  BroadcastProduct(e, c, output, epilogue, rowMemory).emit();
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for products of two dense tensors whose vectors run along the
// result. The loops around a register tile are those of Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication" (2008).

#include "DenseProducts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Steps of a reduction that a register tile takes in a row.
static constexpr int64_t unrollFactor = 4;

BroadcastProduct::BroadcastProduct(Emitter &e, const Contraction &c,
                                   Value output, Epilogue epilogue)
    : e(e), c(c), output(output), epilogue(epilogue), summands(c.reduced) {
  for (unsigned dim : c.outer)
    (c.isIn(1 - c.vectors, dim) ? batch : columns).push_back(dim);
  hasPairs = e.target.hasPairDots && c.isProductOfBF16();
  int64_t total = c.getSize(summands);
  int64_t fitting =
      e.target.streamedBytes() / ((hasPairs ? 2 : 4) * e.target.panel());
  hasKBlocks = total > 2 * fitting;
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
    // Whole vectors, unless there are many other summands.
    bool isWhole =
        c.across || (extent % e.target.lanes == 0 && length >= e.target.lanes);
    length = llvm::alignTo(length, isWhole ? e.target.lanes : unroll);
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

/// Where what `row` of a tile has at `summand` is packed; `tile` is the place
/// of the tile. Pairs of summands lie side by side.
SmallVector<Index> BroadcastProduct::getRowPlace(ArrayRef<Index> tile,
                                                 Index summand, int64_t row) {
  SmallVector<Index> place(tile);
  place.append({summand, Index::constant(row)});
  if (hasPairs)
    std::swap(place[place.size() - 1], place[place.size() - 2]);
  return place;
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

/// True if the vectors of a k-block are not contiguous in memory.
bool BroadcastProduct::isScattered() {
  Value buffer = e.getBuffer(getVectors());
  auto type = cast<RankedTensorType>(getVectors().getType());
  return !buffer ||
         (cast<MemRefType>(buffer.getType()).getRank() == type.getRank() &&
          type.getShape().back() > e.target.panel());
}

/// Fills `memory` with the vectors of `kBlock` in the column `at`.
void BroadcastProduct::packVectors(ArrayRef<Index> at, const KBlock &kBlock,
                                   Value memory) {
  AffineMap map = getVectorMap();
  int64_t lanes = e.target.lanes;
  bool isSquare = c.across && e.width % lanes == 0;
  auto getPlace = [&](ArrayRef<Index> steps) {
    SmallVector<Index> place{getNumber(steps), Index::constant(0)};
    place.back().lanes = e.width > 1;
    return place;
  };
  SmallVector<int64_t> extents = c.getExtents(ArrayRef(summands).drop_back());
  e.nest(extents, {}, [&](ArrayRef<Index> outer, ValueRange) {
    e.loop(e.constant(0), kBlock.count, isSquare ? lanes : 1, {},
           [&](Value step, ValueRange) {
             SmallVector<Index> steps(outer);
             steps.push_back(Index::of(step));
             SmallVector<Index> point = getPoint(at, steps, kBlock);
             if (!isSquare) {
               Value x = e.convert(e.read(getVectors(), applyMap(map, point)),
                                   getPackedType(c.vectors));
               e.store(x, memory, getPlace(steps));
               return SmallVector<Value>();
             }
             // Vectors along the reduced loop, one for each column.
             int64_t width = e.width;
             llvm::SaveAndRestore square(e.width, lanes);
             Index &last = point[summands.back()];
             last.lanes = true;
             last.align = lanes;
             Index first = point[c.lanes].scalar();
             for (int64_t col = 0; col != width; col += lanes) {
               SmallVector<Value> columns;
               for (int64_t i = 0; i != lanes; ++i) {
                 point[c.lanes] = first.plus(col + i);
                 columns.push_back(
                     e.convert(e.read(getVectors(), applyMap(map, point)),
                               getPackedType(c.vectors)));
               }
               for (auto [i, vector] : llvm::enumerate(e.transpose(columns))) {
                 steps.back() = Index::of(step).plus(i);
                 SmallVector<Index> place = getPlace(steps);
                 place.back().offset = col;
                 e.store(vector, memory, place);
               }
             }
             return SmallVector<Value>();
           });
    return SmallVector<Value>();
  });
}

/// Packs `rows` of `kBlock`: what a register tile reads, summand by summand,
/// lies side by side.
void BroadcastProduct::packRows(ArrayRef<Index> at, const KBlock &kBlock,
                                const Rows &rows) {
  AffineMap map = getRowMap();
  unsigned operand = 1 - c.vectors;
  int64_t lanes = e.target.lanes, size = rows.tiles.size;
  Value buffer = e.getBuffer(getRows());
  bool isCut =
      buffer && cast<MemRefType>(buffer.getType()).getRank() !=
                    cast<RankedTensorType>(getRows().getType()).getRank();
  // Vectors along the rows of a tile, or along summands, or no vectors.
  bool alongRows =
      c.row && size > 1 && !isCut && !hasPairs && c.isLast(operand, *c.row);
  bool alongSummands =
      !alongRows && size <= lanes && c.isLast(operand, summands.back()) &&
      c.ranges[summands.back()] % lanes == 0 && length % lanes == 0;
  Type type = getPackedType(operand);
  forPoints(e, c, c.inner, at, [&](ArrayRef<Index> at) {
    Index inner = getInner(at);
    e.loop(e.constant(0), rows.count, 1, {}, [&](Value tile, ValueRange) {
      Index first = e.multiplyAdd(Index::of(tile), size, rows.first);
      SmallVector<int64_t> extents =
          c.getExtents(ArrayRef(summands).drop_back());
      e.nest(extents, {}, [&](ArrayRef<Index> outer, ValueRange) {
        e.loop(
            e.constant(0), kBlock.count, alongSummands ? lanes : 1, {},
            [&](Value step, ValueRange) {
              SmallVector<Index> steps(outer);
              steps.push_back(Index::of(step));
              SmallVector<Index> point = getPoint(at, steps, kBlock);
              auto read = [&](int64_t row) {
                if (c.row)
                  point[*c.row] = first.plus(row);
                return e.convert(e.read(getRows(), applyMap(map, point)), type);
              };
              auto store = [&](Value value, int64_t step, int64_t row) {
                SmallVector<Index> place = getRowPlace(
                    {inner, Index::of(tile)}, getNumber(steps).plus(step), row);
                place.back().lanes = isa<VectorType>(value.getType());
                e.store(value, rows.packed, place);
              };
              if (alongRows) {
                llvm::SaveAndRestore width(e.width, size);
                point[*c.row] = first;
                point[*c.row].lanes = true;
                Value value = e.read(getRows(), applyMap(map, point));
                store(e.broadcast(e.convert(value, type)), 0, 0);
              } else if (alongSummands) {
                llvm::SaveAndRestore width(e.width, lanes);
                Index &last = point[summands.back()];
                last.lanes = lanes > 1;
                last.align = lanes;
                SmallVector<Value> vectors;
                for (int64_t row = 0; row != size; ++row)
                  vectors.push_back(e.broadcast(read(row)));
                vectors.append(lanes - size,
                               e.broadcast(arith::ConstantOp::create(
                                   e.b, e.loc, e.b.getZeroAttr(type))));
                if (hasPairs) {
                  for (int64_t row = 0; row != size; ++row)
                    store(vectors[row], 0, row);
                  return SmallVector<Value>();
                }
                SmallVector<Value> columns = e.transpose(vectors);
                llvm::SaveAndRestore column(e.width, size);
                for (auto [number, column] : llvm::enumerate(columns)) {
                  if (size != lanes)
                    column = vector::ExtractStridedSliceOp::create(
                        e.b, e.loc, column, 0, size, 1);
                  store(column, number, 0);
                }
              } else {
                for (int64_t row = 0; row != size; ++row)
                  store(read(row), 0, row);
              }
              return SmallVector<Value>();
            });
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    });
  });
}

/// Adds `kBlock` to the sums of a tile of `rows` at `at`; `packed` is its place
/// there.
void BroadcastProduct::emitTile(ArrayRef<Index> at, const KBlock &kBlock,
                                const Rows &rows, ArrayRef<Index> packed,
                                Value vectors) {
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
        SmallVector<Index> place{summand, Index::constant(0)};
        place.back().lanes = e.width > 1;
        SmallVector<Index> entry = applyMap(getVectorMap(), loops);
        e.remember(getVectors(), entry, e.load(vectors, place));
      }
      if (rows.packed) {
        SmallVector<Index> place = getRowPlace(packed, summand, number);
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
      if (vectors) {
        SmallVector<Index> place{summand.plus(number), Index::constant(0)};
        place.back().lanes = e.width > 1;
        return e.load(vectors, place);
      }
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
        SmallVector<Index> place = getRowPlace(packed, summand, number);
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

/// Adds `kBlock` to all sums of `item`.
void BroadcastProduct::emitKBlock(const Item &item, const Columns &parts,
                                  const Tiles &lanes, const KBlock &kBlock) {
  int64_t panel = e.target.panel();
  auto emitTiles = [&](ArrayRef<Index> at, const Rows &rows, Index vector) {
    e.loop(e.constant(0), rows.count, 1, {}, [&](Value tile, ValueRange) {
      SmallVector<Index> point(at), packed{getInner(at), Index::of(tile)};
      if (c.row)
        point[*c.row] =
            e.multiplyAdd(Index::of(tile), rows.tiles.size, rows.first);
      emitTile(point, kBlock, rows, packed, item.vectors);
      if (epilogue)
        emitEpilogue(point, kBlock, rows.tiles.size, vector);
      return SmallVector<Value>();
    });
  };
  for (const Rows &rows : item.rows)
    if (rows.packed)
      packRows(item.at, kBlock, rows);
  e.loop(item.lowColumn, item.highColumn, 1, {}, [&](Value number, ValueRange) {
    e.nest(parts.getInner(), {}, [&](ArrayRef<Index> inner, ValueRange) {
      SmallVector<Index> numbers(item.leading);
      numbers.push_back(Index::of(number));
      llvm::append_range(numbers, inner);
      SmallVector<Index> at(item.at);
      for (auto [dim, number] : llvm::zip(columns, numbers))
        at[dim] = number;
      Index lane =
          e.multiplyAdd(numbers.back(), panel, Index::constant(lanes.base));
      // Of the rest, in powers of two, each is a vector.
      Index vector = numbers.back().plus(lanes.base / panel);
      e.forLanes(e.materialize(lane), lanes.size, panel, [&](Index lane) {
        at[c.lanes] = lane;
        if (item.vectors)
          packVectors(at, kBlock, item.vectors);
        forPoints(e, c, c.inner, at, [&](ArrayRef<Index> at) {
          for (const Rows &rows : item.rows)
            emitTiles(at, rows, vector);
        });
        vector = vector.plus(1);
      });
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
}

/// Emits the work items of `lanes`.
void BroadcastProduct::emitItems(const Tiles &lanes, const Division &division) {
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
    Index block = ivs[ivs.size() - 2];
    for (const Tiles &tiles : division.tiles) {
      Value count = e.constant(tiles.count);
      if (division.lastTiles != division.tiles.front().count) {
        int64_t total =
            (division.blocks - 1) * tiles.count + division.lastTiles;
        Value before = e.materialize(
            e.multiplyAdd(block, tiles.count, Index::constant(0)));
        Value rest =
            arith::SubIOp::create(e.b, e.loc, e.constant(total), before);
        count = arith::MinUIOp::create(e.b, e.loc, rest, count);
      }
      Value packed;
      if (division.packsRows)
        packed = e.allocate(
            hasPairs ? ArrayRef<int64_t>{c.getSize(c.inner), tiles.count,
                                         tiles.size, numSummands}
                     : ArrayRef<int64_t>{c.getSize(c.inner), tiles.count,
                                         numSummands, tiles.size},
            getPackedType(1 - c.vectors));
      Index first =
          e.multiplyAdd(block, division.height, Index::constant(tiles.base));
      item.rows.push_back({tiles, first, count, packed});
    }
    if (division.packsVectors)
      item.vectors =
          e.allocate({numSummands, e.target.panel()}, getPackedType(c.vectors));
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
                               Epilogue epilogue) {
  BroadcastProduct(e, c, output, epilogue).emit();
}

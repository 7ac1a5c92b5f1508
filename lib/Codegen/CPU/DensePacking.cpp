// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What dense products pack: vectors and rows, so that what a register tile
// reads lies side by side.

#include "DenseProducts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Panels of lanes, at least, for which all rows are packed.
static constexpr int64_t minPackedPanels = 4;
/// Tiles that are packed together: 48 rows of 4 bytes, which may lie side by
/// side, are three cache lines.
static constexpr int64_t packedTiles = 8;

MemRefType cpu::getRowMemory(const Contraction &c, CPUTarget target) {
  unsigned operand = 1 - c.vectors;
  auto isInRows = [&](unsigned dim) { return c.isIn(operand, dim); };
  auto isLast = [&](unsigned dim) { return c.isLast(operand, dim); };
  if (!target.streamsFromSecond() || c.dot || !c.row || !c.inner.empty() ||
      llvm::any_of(c.outer, isInRows) || llvm::any_of(c.reduced, isLast) ||
      c.ranges[c.lanes] < minPackedPanels * target.panel())
    return {};
  bool hasPairs = target.hasPairDots && c.isProductOfBF16() &&
                  c.ranges[c.reduced.back()] % 2 == 0;
  // The summands of a k-block lie side by side.
  int64_t total = c.getSize(c.reduced);
  if (c.reduced.size() != 1 &&
      total * (hasPairs ? 2 : 4) * target.panel() > target.rowBytes())
    return {};
  Type type = hasPairs ? BFloat16Type::get(c.op.getContext())
                       : c.getFactorType(operand);
  return MemRefType::get(c.ranges[*c.row] * total, type);
}

/// Where what `row` of a tile has at `summand` is packed; `tile` is the place
/// of the tile. Pairs of summands lie side by side.
SmallVector<Index> BroadcastProduct::getRowPlace(const Rows &rows,
                                                 ArrayRef<Index> tile,
                                                 Index summand, int64_t row) {
  if (rowMemory) {
    int64_t step = hasPairs ? 1 : rows.tiles.size;
    int64_t apart = hasPairs ? c.getSize(summands) : 1;
    return {e.multiplyAdd(summand, step, tile.front().plus(row * apart))};
  }
  SmallVector<Index> place(tile);
  place.append({summand, Index::constant(row)});
  if (hasPairs)
    std::swap(place[place.size() - 1], place[place.size() - 2]);
  return place;
}

/// The place of the tile of `rows` from row `first` on, at `summand` of all.
SmallVector<Index> BroadcastProduct::getTilePlace(const Rows &rows, Index first,
                                                  Index summand) {
  if (!rowMemory)
    return {Index::constant(0), Index::constant(0)};
  Index place = e.multiplyAdd(first, c.getSize(summands), Index::constant(0));
  return {e.multiplyAdd(summand, hasPairs ? 1 : rows.tiles.size, place)};
}

/// True if the vectors of a k-block are not contiguous in memory.
bool BroadcastProduct::isScattered() {
  Value buffer = e.getBuffer(getVectors());
  auto type = cast<RankedTensorType>(getVectors().getType());
  return !buffer ||
         (cast<MemRefType>(buffer.getType()).getRank() == type.getRank() &&
          type.getShape().back() > e.target.panel());
}

/// Where the vectors of `summand`, from lane `offset` of `lanes` on, are
/// packed.
SmallVector<Index> BroadcastProduct::getVectorPlace(const Lanes &lanes,
                                                    Index summand,
                                                    int64_t offset) {
  SmallVector<Index> place{lanes.column, summand,
                           Index::constant(lanes.offset + offset)};
  place.back().lanes = e.width > 1;
  return place;
}

/// Runs `body` for the summands of `kBlock` along the last loop: for as many at
/// once as a vector has lanes if `isSquare`, and then for those that are left.
void BroadcastProduct::forSummands(
    const KBlock &kBlock, bool isSquare,
    llvm::function_ref<void(Value step, bool isSquare)> body) {
  int64_t lanes = e.target.lanes;
  auto loop = [&](Value low, Value high, bool isSquare) {
    e.loop(low, high, isSquare ? lanes : 1, {}, [&](Value step, ValueRange) {
      body(step, isSquare);
      return SmallVector<Value>();
    });
  };
  if (!isSquare || c.ranges[summands.back()] % lanes == 0)
    return loop(e.constant(0), kBlock.count, isSquare);
  Value left =
      arith::RemUIOp::create(e.b, e.loc, kBlock.count, e.constant(lanes));
  Value squares = arith::SubIOp::create(e.b, e.loc, kBlock.count, left);
  loop(e.constant(0), squares, true);
  loop(squares, kBlock.count, false);
}

/// Fills `memory` with the vectors of `kBlock` in `lanes` of the column `at`.
void BroadcastProduct::packVectors(ArrayRef<Index> at, const KBlock &kBlock,
                                   Value memory, const Lanes &lanesOfColumn) {
  AffineMap map = getVectorMap();
  int64_t lanes = e.target.lanes;
  bool hasSquares = c.across && e.width % lanes == 0;
  SmallVector<int64_t> extents = c.getExtents(ArrayRef(summands).drop_back());
  e.nest(extents, {}, [&](ArrayRef<Index> outer, ValueRange) {
    forSummands(kBlock, hasSquares, [&](Value step, bool isSquare) {
      SmallVector<Index> steps(outer);
      steps.push_back(Index::of(step));
      SmallVector<Index> point = getPoint(at, steps, kBlock);
      if (!isSquare) {
        Value x = e.convert(e.read(getVectors(), applyMap(map, point)),
                            getPackedType(c.vectors));
        e.store(x, memory, getVectorPlace(lanesOfColumn, getNumber(steps)));
        return;
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
          e.store(vector, memory,
                  getVectorPlace(lanesOfColumn, getNumber(steps), col));
        }
      }
    });
    return SmallVector<Value>();
  });
}

/// Packs `rows` of `kBlock`: what a register tile reads, summand by summand,
/// lies side by side.
void BroadcastProduct::packRows(ArrayRef<Index> at, const KBlock &kBlock,
                                const Rows &rows) {
  forPoints(e, c, c.inner, at, [&](ArrayRef<Index> at) {
    e.loop(e.constant(0), rows.count, 1, {}, [&](Value tile, ValueRange) {
      packTile(at, kBlock, rows, tile, {getInner(at), Index::of(tile)});
      return SmallVector<Value>();
    });
  });
}

/// Packs one `tile` of `rows`, to the place `packed`.
void BroadcastProduct::packTile(ArrayRef<Index> at, const KBlock &kBlock,
                                const Rows &rows, Value tile,
                                ArrayRef<Index> packed) {
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
  int64_t extent = c.ranges[summands.back()];
  bool isWhole = extent % lanes == 0 || (!hasPairs && extent >= 4 * lanes);
  bool hasSquares = !alongRows && size <= lanes &&
                    c.isLast(operand, summands.back()) && isWhole &&
                    (length == extent || length % lanes == 0);
  Type type = getPackedType(operand);
  Index first = e.multiplyAdd(Index::of(tile), size, rows.first);
  SmallVector<int64_t> extents = c.getExtents(ArrayRef(summands).drop_back());
  e.nest(extents, {}, [&](ArrayRef<Index> outer, ValueRange) {
    forSummands(kBlock, hasSquares, [&](Value step, bool isSquare) {
      SmallVector<Index> steps(outer);
      steps.push_back(Index::of(step));
      SmallVector<Index> point = getPoint(at, steps, kBlock);
      auto read = [&](int64_t row) {
        if (c.row)
          point[*c.row] = first.plus(row);
        return e.convert(e.read(getRows(), applyMap(map, point)), type);
      };
      auto store = [&](Value value, int64_t step, int64_t row) {
        SmallVector<Index> place =
            getRowPlace(rows, packed, getNumber(steps).plus(step), row);
        place.back().lanes = isa<VectorType>(value.getType());
        e.store(value, rows.packed, place);
      };
      if (alongRows) {
        llvm::SaveAndRestore width(e.width, size);
        point[*c.row] = first;
        point[*c.row].lanes = true;
        Value value = e.read(getRows(), applyMap(map, point));
        return store(e.broadcast(e.convert(value, type)), 0, 0);
      }
      if (!isSquare) {
        for (int64_t row = 0; row != size; ++row)
          store(read(row), 0, row);
        return;
      }
      llvm::SaveAndRestore width(e.width, lanes);
      Index &last = point[summands.back()];
      last.lanes = lanes > 1;
      last.align = lanes;
      SmallVector<Value> vectors;
      for (int64_t row = 0; row != size; ++row)
        vectors.push_back(e.broadcast(read(row)));
      if (hasPairs) {
        for (int64_t row = 0; row != size; ++row)
          store(vectors[row], 0, row);
        return;
      }
      vectors.append(lanes - size, e.broadcast(arith::ConstantOp::create(
                                       e.b, e.loc, e.b.getZeroAttr(type))));
      SmallVector<Value> columns = e.transpose(vectors);
      llvm::SaveAndRestore column(e.width, size);
      for (auto [number, column] : llvm::enumerate(columns)) {
        if (size != lanes)
          column = vector::ExtractStridedSliceOp::create(e.b, e.loc, column, 0,
                                                         size, 1);
        store(column, number, 0);
      }
    });
    return SmallVector<Value>();
  });
}

/// Packs the rows of all work items.
void BroadcastProduct::packAllRows(const Division &division) {
  for (auto [number, tiles] : llvm::enumerate(division.tiles)) {
    int64_t size = getDivisor(tiles.count, packedTiles);
    e.forall({division.blocks, tiles.count / size}, [&, number = number](
                                                        ArrayRef<Index> ivs) {
      SmallVector<Index> at(c.ranges.size(), Index::constant(0));
      Value extent = e.constant(c.ranges[summands.back()]);
      KBlock kBlock{e.constant(0), extent, Value(), Value()};
      Rows rows = getRowsOf(ivs[0], division)[number];
      Value low =
          e.materialize(e.multiplyAdd(ivs[1], size, Index::constant(0)));
      Value high = arith::AddIOp::create(e.b, e.loc, low, e.constant(size));
      high = arith::MinUIOp::create(e.b, e.loc, high, rows.count);
      e.loop(low, high, 1, {}, [&](Value tile, ValueRange) {
        Index first =
            e.multiplyAdd(Index::of(tile), rows.tiles.size, rows.first);
        packTile(at, kBlock, rows, tile,
                 getTilePlace(rows, first, Index::constant(0)));
        return SmallVector<Value>();
      });
    });
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels for products of rows with the matrices of their groups. One thread
// sorts the rows by their groups, by counting. A work item then takes some
// columns of the result and goes through all groups: how rows are spread over
// groups changes nothing about how work is spread over threads, and no sum
// depends on which thread takes it.

#include "GroupKernels.h"
#include "bsr/Codegen/CPU/Tiling.h"
#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Dialect/Groups.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Tiles of rows of a matrix, at most, whose features a work item of
/// `bsr.grouped_outer` packs: what it packs of the other operand is read as
/// often.
static constexpr int64_t maxTiles = 8;
/// Tiles of columns, at least, that it multiplies them with.
static constexpr int64_t minColumnTiles = 4;

namespace {
/// The rows of each group, in their order, and behind the groups those of none:
/// where each group begins, where the last one ends, and the rows.
class GroupRows {
public:
  GroupRows(Emitter &e, Value groups, int64_t numGroups, Value memory)
      : numGroups(numGroups), e(e), groups(groups), memory(memory) {
    numRows = cast<RankedTensorType>(groups.getType()).getDimSize(0);
  }

  static MemRefType getType(Value groups, int64_t numGroups) {
    int64_t numRows = cast<RankedTensorType>(groups.getType()).getDimSize(0);
    return MemRefType::get(numGroups + 3 + numRows,
                           IntegerType::get(groups.getContext(), 32));
  }

  /// Fills the memory.
  void sort();
  /// The place of the first row of `group`, and the one behind its last.
  std::pair<Value, Value> getPlaces(Index group) {
    return {loadIndex(e, memory, group), loadIndex(e, memory, group.plus(1))};
  }
  Index getRow(Value place) {
    return Index::of(
        loadIndex(e, memory, Index::of(place).plus(numGroups + 3)));
  }

  int64_t numGroups, numRows;

private:
  void store(Value number, Index at);
  void add(Value number, Index at);
  Index getGroup(Index row);

  Emitter &e;
  Value groups, memory;
};
} // namespace

void GroupRows::store(Value number, Index at) {
  Value value =
      arith::IndexCastOp::create(e.b, e.loc, e.b.getI32Type(), number);
  memref::StoreOp::create(e.b, e.loc, value, memory, e.materialize(at));
}

void GroupRows::add(Value number, Index at) {
  store(arith::AddIOp::create(e.b, e.loc, loadIndex(e, memory, at), number),
        at);
}

Index GroupRows::getGroup(Index row) {
  Value group = arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(),
                                           e.read(groups, row));
  // Unsigned: a negative number is too large as well.
  return Index::of(
      arith::MinUIOp::create(e.b, e.loc, group, e.constant(numGroups)));
}

void GroupRows::sort() {
  auto forAll = [&](int64_t extent, llvm::function_ref<void(Index)> body) {
    e.loop(extent, {}, [&](Index index, ValueRange) {
      body(index);
      return SmallVector<Value>();
    });
  };
  // Counts lie two places behind their groups, so that sums of them are where
  // the next group begins; that moves on with each row, to where it ends.
  forAll(numGroups + 3, [&](Index at) { store(e.constant(0), at); });
  forAll(numRows,
         [&](Index row) { add(e.constant(1), getGroup(row).plus(2)); });
  forAll(numGroups + 2,
         [&](Index at) { add(loadIndex(e, memory, at), at.plus(1)); });
  forAll(numRows, [&](Index row) {
    Index next = getGroup(row).plus(1);
    Value place = loadIndex(e, memory, next);
    store(e.materialize(row), Index::of(place).plus(numGroups + 3));
    add(e.constant(1), next);
  });
}

static Index withLanes(Index index, int64_t width) {
  index.lanes = width > 1;
  return index;
}

/// The columns of a register tile whose sums are of `type`.
static int64_t getColumns(Emitter &e, Type type) {
  return std::max<int64_t>(1, e.target.panel() * 32 /
                                  type.getIntOrFloatBitWidth());
}

/// The smallest of `low + length` and `high`, less `low`.
static Value getLength(Emitter &e, Value low, Value high, int64_t length) {
  Value left = arith::SubIOp::create(e.b, e.loc, high, low);
  return arith::MinUIOp::create(e.b, e.loc, left, e.constant(length));
}

/// Calls `body` for `[0, count)`.
static void forCount(Emitter &e, Value count,
                     llvm::function_ref<void(Index)> body) {
  e.loop(e.constant(0), count, 1, {}, [&](Value at, ValueRange) {
    body(Index::of(at));
    return SmallVector<Value>();
  });
}

//===----------------------------------------------------------------------===//
// GroupedMatmulOp
//===----------------------------------------------------------------------===//

namespace {
/// What a work item computes: `width` columns of the result, from `column` on.
class MatmulItem {
public:
  MatmulItem(Emitter &e, GroupedMatmulOp op, Value output, GroupRows &rows,
             Index column, int64_t width)
      : e(e), op(op), output(output), rows(rows), column(column), width(width) {
    features = op.getX().getType().getDimSize(1);
    type = op.getY().getType().getElementType();
    length = std::min(features, e.target.streamedBytes() * 8 /
                                    (width * type.getIntOrFloatBitWidth()));
  }

  void emit();

private:
  void pack(Index group, Value low, Value count);
  void packTransposed(Index group, Value low, Value count);
  void multiply(Value place, Value end, Value low, Value count);
  SmallVector<Index> getSums(Index row) {
    return {row, withLanes(column, width)};
  }

  Emitter &e;
  GroupedMatmulOp op;
  Value output;
  GroupRows &rows;
  Index column;
  int64_t width, features, length;
  Type type;
  /// What the columns have of a matrix at `length` features.
  Value strip;
};
} // namespace

/// Packs columns of the matrix of `group` at the `count` features from `low`.
void MatmulItem::pack(Index group, Value low, Value count) {
  if (op.getTranspose())
    return packTransposed(group, low, count);
  forCount(e, count, [&](Index k) {
    Index feature = e.multiplyAdd(k, 1, Index::of(low));
    Value vector =
        e.read(op.getW(), {group, feature, withLanes(column, width)});
    e.store(e.convert(vector, type), strip,
            {k, withLanes(Index::constant(0), width)});
  });
}

/// The same of matrices whose rows are columns: squares of them in registers.
void MatmulItem::packTransposed(Index group, Value low, Value count) {
  int64_t lanes = e.target.lanes;
  Value done = e.constant(0);
  if (lanes > 1 && width % lanes == 0) {
    Value rest = arith::RemUIOp::create(e.b, e.loc, count, e.constant(lanes));
    done = arith::SubIOp::create(e.b, e.loc, count, rest);
    llvm::SaveAndRestore squares(e.width, lanes);
    e.loop(e.constant(0), done, lanes, {}, [&](Value k, ValueRange) {
      Index feature = e.multiplyAdd(Index::of(k), 1, Index::of(low));
      for (int64_t first = 0; first != width; first += lanes) {
        SmallVector<Value> lines;
        for (int64_t i = 0; i != lanes; ++i)
          lines.push_back(
              e.convert(e.read(op.getW(), {group, column.plus(first + i),
                                           withLanes(feature, lanes)}),
                        type));
        for (auto [i, vector] : llvm::enumerate(e.transpose(lines)))
          e.store(
              vector, strip,
              {Index::of(k).plus(i), withLanes(Index::constant(first), lanes)});
      }
      return SmallVector<Value>();
    });
  }
  llvm::SaveAndRestore scalar(e.width, int64_t(1));
  e.loop(done, count, 1, {}, [&](Value k, ValueRange) {
    Index feature = e.multiplyAdd(Index::of(k), 1, Index::of(low));
    return e.loop(width, {}, [&](Index i, ValueRange) {
      Value element =
          e.read(op.getW(), {group, e.multiplyAdd(i, 1, column), feature});
      e.store(e.convert(element, type), strip, {Index::of(k), i});
      return SmallVector<Value>();
    });
  });
}

/// Adds to a tile of rows, from that at `place` on, what they have at the
/// `count` features from `low`. Where the group ends within a tile, its last
/// row stands for those that are missing: all write the same.
void MatmulItem::multiply(Value place, Value end, Value low, Value count) {
  Value last = arith::SubIOp::create(e.b, e.loc, end, e.constant(1));
  SmallVector<Index> tile;
  SmallVector<Value> sums;
  for (int64_t i = 0; i != CPUTarget::tileRows; ++i) {
    Value own = e.materialize(Index::of(place).plus(i));
    tile.push_back(rows.getRow(arith::MinUIOp::create(e.b, e.loc, own, last)));
    sums.push_back(e.load(output, getSums(tile.back())));
  }
  sums =
      e.loop(e.constant(0), count, 1, sums, [&](Value k, ValueRange carried) {
        SmallVector<Value> next(carried);
        Value vector =
            e.load(strip, {Index::of(k), withLanes(Index::constant(0), width)});
        Index feature = e.multiplyAdd(Index::of(k), 1, Index::of(low));
        for (auto [row, sum] : llvm::zip_equal(tile, next))
          sum = multiplyAdd(e, e.read(op.getX(), {row, feature}), vector, sum);
        return next;
      });
  for (auto [row, sum] : llvm::zip_equal(tile, sums))
    e.store(sum, output, getSums(row));
}

void MatmulItem::emit() {
  llvm::SaveAndRestore lanes(e.width, width);
  strip = e.allocate({length, width}, type);
  e.loop(rows.numRows, {}, [&](Index row, ValueRange) {
    e.store(getZeros(e, type, 1).front(), output, getSums(row));
    return SmallVector<Value>();
  });
  e.loop(rows.numGroups, {}, [&](Index group, ValueRange) {
    Value begin, end;
    std::tie(begin, end) = rows.getPlaces(group);
    // Nothing is packed for a group without rows.
    Value isEmpty =
        arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, begin, end);
    Value high = arith::SelectOp::create(e.b, e.loc, isEmpty, e.constant(0),
                                         e.constant(features));
    e.loop(e.constant(0), high, length, {}, [&](Value low, ValueRange) {
      Value count = getLength(e, low, e.constant(features), length);
      pack(group, low, count);
      e.loop(begin, end, CPUTarget::tileRows, {}, [&](Value place, ValueRange) {
        multiply(place, end, low, count);
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
}

static void emitMatmul(Emitter &e, GroupedMatmulOp op, Value output,
                       GroupRows rows) {
  RankedTensorType y = op.getY().getType();
  for (Tiles tiles :
       getVectors(y.getDimSize(1), getColumns(e, y.getElementType())))
    e.forall(tiles.count, [&](ArrayRef<Index> item) {
      Index column =
          e.multiplyAdd(item.front(), tiles.size, Index::constant(tiles.base));
      MatmulItem(e, op, output, rows, column, tiles.size).emit();
    });
}

//===----------------------------------------------------------------------===//
// GroupedOuterOp
//===----------------------------------------------------------------------===//

namespace {
/// What a work item computes of each matrix: `height` rows from `row` on, and
/// `count` times `width` columns from `column` on.
struct OuterTile {
  Index row;
  int64_t height;
  Index column;
  int64_t count, width;
};

class OuterItem {
public:
  OuterItem(Emitter &e, GroupedOuterOp op, Value output, GroupRows &rows,
            const OuterTile &tile)
      : e(e), op(op), output(output), rows(rows), tile(tile) {
    type = op.getW().getType().getElementType();
    length = std::max<int64_t>(
        1, e.target.streamedBytes() * 8 /
               ((tile.height + tile.width) * type.getIntOrFloatBitWidth()));
  }

  void emit();

private:
  void pack(Value operand, Value strip, Index first, int64_t extent, Value low,
            Value number);
  void multiply(Index group, Index row, int64_t numRows, Index first,
                Value isFirst, Value number);

  Emitter &e;
  GroupedOuterOp op;
  Value output;
  GroupRows &rows;
  OuterTile tile;
  int64_t length;
  Type type;
  /// What `length` rows of each operand have at the features of the item.
  Value a, b;
};
} // namespace

/// Packs `extent` features, from `first` on, of the `number` rows of a group
/// from place `low` on.
void OuterItem::pack(Value operand, Value strip, Index first, int64_t extent,
                     Value low, Value number) {
  forCount(e, number, [&](Index k) {
    Index from =
        rows.getRow(e.materialize(e.multiplyAdd(k, 1, Index::of(low))));
    for (Tiles tiles : getVectors(extent, getColumns(e, type))) {
      llvm::SaveAndRestore lanes(e.width, tiles.size);
      for (int64_t number = 0; number != tiles.count; ++number) {
        int64_t at = tiles.base + number * tiles.size;
        Value vector =
            e.read(operand, {from, withLanes(first.plus(at), tiles.size)});
        e.store(e.convert(vector, type), strip,
                {k, withLanes(Index::constant(at), tiles.size)});
      }
    }
  });
}

/// Adds the products of `number` packed rows to `numRows` rows of the item,
/// from its `row` on, or sets them to these if they are the first of their
/// group.
void OuterItem::multiply(Index group, Index row, int64_t numRows, Index first,
                         Value isFirst, Value number) {
  auto place = [&](int64_t i) {
    return SmallVector<Index>{group, e.multiplyAdd(row, 1, tile.row).plus(i),
                              withLanes(first, tile.width)};
  };
  Value zero = getZeros(e, type, 1).front();
  SmallVector<Value> sums;
  for (int64_t i = 0; i != numRows; ++i)
    sums.push_back(arith::SelectOp::create(e.b, e.loc, isFirst, zero,
                                           e.load(output, place(i))));
  sums =
      e.loop(e.constant(0), number, 1, sums, [&](Value k, ValueRange carried) {
        SmallVector<Value> next(carried);
        Value vector = e.load(
            b, {Index::of(k), withLanes(Index::constant(0), tile.width)});
        for (auto [i, sum] : llvm::enumerate(next))
          sum = multiplyAdd(e, e.load(a, {Index::of(k), row.plus(i)}), vector,
                            sum);
        return next;
      });
  for (auto [i, sum] : llvm::enumerate(sums))
    e.store(sum, output, place(i));
}

void OuterItem::emit() {
  llvm::SaveAndRestore lanes(e.width, tile.width);
  a = e.allocate({length, tile.height}, type);
  b = e.allocate({length, tile.width}, type);
  e.loop(rows.numGroups, {}, [&](Index group, ValueRange) {
    Value begin, end;
    std::tie(begin, end) = rows.getPlaces(group);
    // A group without rows has one round, of none.
    Value some = e.materialize(Index::of(begin).plus(1));
    Value high = arith::MaxUIOp::create(e.b, e.loc, end, some);
    e.loop(begin, high, length, {}, [&](Value low, ValueRange) {
      Value number = getLength(e, low, end, length);
      Value isFirst = arith::CmpIOp::create(
          e.b, e.loc, arith::CmpIPredicate::eq, low, begin);
      pack(op.getA(), a, tile.row, tile.height, low, number);
      return e.loop(tile.count, {}, [&](Index block, ValueRange) {
        Index first = e.multiplyAdd(block, tile.width, tile.column);
        pack(op.getB(), b, first, tile.width, low, number);
        for (Tiles rows : tileWithRemainder(tile.height, CPUTarget::tileRows))
          e.loop(rows.count, {}, [&](Index strip, ValueRange) {
            multiply(
                group,
                e.multiplyAdd(strip, rows.size, Index::constant(rows.base)),
                rows.size, first, isFirst, number);
            return SmallVector<Value>();
          });
        return SmallVector<Value>();
      });
    });
    return SmallVector<Value>();
  });
}

/// How many parts to cut `blocks` of columns in, equally, if each is an item
/// for each of `others`.
static int64_t getColumnParts(int64_t blocks, int64_t others) {
  int64_t parts = 1;
  for (int64_t divisor = 1; divisor * minColumnTiles <= blocks; ++divisor)
    if (blocks % divisor == 0 && parts * others < minItems)
      parts = divisor;
  return parts;
}

static void emitOuter(Emitter &e, GroupedOuterOp op, Value output,
                      GroupRows rows) {
  RankedTensorType w = op.getW().getType();
  for (Tiles strip :
       tileWithRemainder(w.getDimSize(1), maxTiles * CPUTarget::tileRows))
    for (Tiles tiles :
         getVectors(w.getDimSize(2), getColumns(e, w.getElementType()))) {
      int64_t parts = getColumnParts(tiles.count, strip.count);
      int64_t count = tiles.count / parts;
      e.forall({strip.count, parts}, [&](ArrayRef<Index> item) {
        Index row =
            e.multiplyAdd(item[0], strip.size, Index::constant(strip.base));
        Index column = e.multiplyAdd(item[1], count * tiles.size,
                                     Index::constant(tiles.base));
        OuterTile tile{row, strip.size, column, count, tiles.size};
        OuterItem(e, op, output, rows, tile).emit();
      });
    }
}

//===----------------------------------------------------------------------===//
// Dispatch
//===----------------------------------------------------------------------===//

SmallVector<MemRefType> cpu::getGroupMemory(Operation *root) {
  if (auto op = dyn_cast<GroupedMatmulOp>(root))
    return {
        GroupRows::getType(op.getGroups(), op.getW().getType().getDimSize(0))};
  if (auto op = dyn_cast<GroupedOuterOp>(root))
    return {
        GroupRows::getType(op.getGroups(), op.getW().getType().getDimSize(0))};
  return {};
}

bool cpu::emitGroups(Emitter &e, Operation *root, Value output,
                     ValueRange scratch) {
  auto sort = [&](auto op) {
    GroupRows rows(e, op.getGroups(), op.getW().getType().getDimSize(0),
                   scratch.front());
    rows.sort();
    return rows;
  };
  if (auto op = dyn_cast<GroupedMatmulOp>(root))
    emitMatmul(e, op, output, sort(op));
  else if (auto op = dyn_cast<GroupedOuterOp>(root))
    emitOuter(e, op, output, sort(op));
  else
    return false;
  return true;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for the products and the other operations of the dialect.

#include "Kernels.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::bsr;

unsigned bsr::getViews(Operation *op) {
  return TypeSwitch<Operation *, unsigned>(op)
      .Case([](SpMMOp op) { return op.getTranspose() ? 1 : 2; })
      .Case([](ToDenseOp op) { return op.getTranspose() ? 2 : 1; })
      .Case<SDDMMOp, SampleOp, LiveOp, NumAbsentOp>([](auto) { return 1; })
      .Default(0u);
}

/// The element type that sums of products of `types` are taken in.
static Type getSumType(OpBuilder &b, TypeRange types) {
  bool isDouble = llvm::any_of(
      types, [](Type t) { return getElementTypeOrSelf(t).isF64(); });
  return isDouble ? b.getF64Type() : b.getF32Type();
}

/// Entry `at` of an array of 32-bit indices, as an index.
static Value loadIndex(Emitter &e, Value array, Index at) {
  Value value = memref::LoadOp::create(e.b, e.loc, array, e.materialize(at));
  return arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), value);
}

/// Calls `body` for every block of `line` with its slot and its position along
/// the line, carrying values.
static SmallVector<Value> forBlocks(
    Emitter &e, const PatternView &view, Index line, ValueRange inits,
    llvm::function_ref<SmallVector<Value>(Index, Index, ValueRange)> body) {
  Value low = loadIndex(e, view.ptr, line);
  Value high = loadIndex(e, view.ptr, line.plus(1));
  return e.loop(low, high, 1, inits, [&](Value k, ValueRange carried) {
    Index slot = Index::of(loadIndex(e, view.slot, Index::of(k)));
    Index position = Index::of(loadIndex(e, view.idx, Index::of(k)));
    return body(slot, position, carried);
  });
}

/// The largest of `limit` and below that divides `extent`.
static int64_t getDivisor(int64_t extent, int64_t limit) {
  while (extent % limit)
    --limit;
  return limit;
}

static Value multiplyAdd(Emitter &e, Value a, Value c, Value sum) {
  Type type = getElementTypeOrSelf(sum.getType());
  Value product =
      arith::MulFOp::create(e.b, e.loc, e.broadcast(e.convert(a, type)),
                            e.broadcast(e.convert(c, type)));
  return arith::AddFOp::create(e.b, e.loc, product, sum);
}

static SmallVector<Value> getZeros(Emitter &e, Type type, int64_t count) {
  Value zero = arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(type));
  return SmallVector<Value>(count, e.broadcast(zero));
}

namespace {
/// Where the dimensions of activations are: features at `featureDim`, lanes
/// last if that leaves a dimension for them (`bsr-layout` sees to it; without
/// lanes, products are right and scalar), others leading.
struct Activations {
  Activations(ArrayRef<int64_t> shape, int64_t featureDim)
      : featureDim(featureDim),
        hasLanes(featureDim + 1 != static_cast<int64_t>(shape.size())),
        tokens(hasLanes ? shape.back() : 1),
        leading(hasLanes ? shape.drop_back() : shape) {
    leading.erase(leading.begin() + featureDim);
  }

  SmallVector<Index> at(ArrayRef<Index> outer, Index feature,
                        Index lane) const {
    SmallVector<Index> position(outer);
    position.insert(position.begin() + featureDim, feature);
    if (hasLanes)
      position.push_back(lane);
    return position;
  }

  int64_t featureDim;
  bool hasLanes;
  /// The extent of the lanes, and those of the leading token dimensions.
  int64_t tokens;
  SmallVector<int64_t> leading;
};
} // namespace

/// Gathers: a work item is a panel of lanes of one token slice and a line of
/// blocks of the output. It walks the stored blocks of its line, with a
/// register tile of `rows` features x `width` lanes of sums.
static void emitSpMM(Emitter &e, SpMMOp op, Value output,
                     const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  bool transpose = op.getTranspose();
  const PatternView &view = patterns.at({op.getPattern(), !transpose});
  Activations activations(op.getX().getType().getShape(), op.getFeatureDim());
  int64_t lines = transpose ? pattern.getGridRows() : pattern.getGridCols();
  int64_t outBlock =
      transpose ? pattern.getBlockRows() : pattern.getBlockCols();
  int64_t inBlock = transpose ? pattern.getBlockCols() : pattern.getBlockRows();
  Type sumType = getSumType(e.b, {op.getValues().getType(), op.getX().getType(),
                                  op.getY().getType()});
  Type outType = op.getY().getType().getElementType();

  int64_t rows = getDivisor(outBlock, Registers::tileRows);
  int64_t vectors = llvm::bit_floor<uint64_t>(e.registers.tileVectors() *
                                              Registers::tileRows / rows);
  int64_t tokens = activations.tokens;
  int64_t panel = std::min<int64_t>(e.registers.lanes * vectors,
                                    llvm::bit_floor<uint64_t>(tokens));
  auto emitLine = [&](ArrayRef<Index> leading, Index line, Value low,
                      int64_t extent) {
    e.forLanes(low, extent, panel, [&](Index lane) {
      e.loop(outBlock / rows, {}, [&](Index tile, ValueRange) {
        Index first = e.multiplyAdd(tile, rows, Index::constant(0));
        SmallVector<Value> sums = forBlocks(
            e, view, line, getZeros(e, sumType, rows),
            [&](Index slot, Index block, ValueRange outer) {
              return e.loop(inBlock, outer, [&](Index k, ValueRange carried) {
                Value x = e.read(
                    op.getX(),
                    activations.at(leading, e.multiplyAdd(block, inBlock, k),
                                   lane));
                SmallVector<Value> next;
                for (int64_t row = 0; row != rows; ++row) {
                  Index out = first.plus(row);
                  SmallVector<Index> entry{slot, k, out};
                  if (transpose)
                    std::swap(entry[1], entry[2]);
                  Value w = e.read(op.getValues(), entry);
                  next.push_back(multiplyAdd(e, w, x, carried[row]));
                }
                return next;
              });
            });
        for (auto [row, sum] : llvm::enumerate(sums)) {
          Index feature = e.multiplyAdd(line, outBlock, first.plus(row));
          e.store(e.convert(sum, outType), output,
                  activations.at(leading, feature, lane));
        }
        return SmallVector<Value>();
      });
    });
  };

  int64_t panels = tokens / panel;
  SmallVector<int64_t> extents(activations.leading);
  extents.append({panels, lines});
  emitParallel(e, extents, [&](ArrayRef<Index> at) {
    Index low = e.multiplyAdd(at[at.size() - 2], panel, Index::constant(0));
    emitLine(at.drop_back(2), at.back(), e.materialize(low), panel);
  });
  int64_t rest = tokens % panel;
  if (!rest)
    return;
  extents[extents.size() - 2] = 1;
  emitParallel(e, extents, [&](ArrayRef<Index> at) {
    emitLine(at.drop_back(2), at.back(), e.constant(panels * panel), rest);
  });
}

/// A work item is a block row; each stored block of it is a register tile at a
/// time, summed over all tokens in vectors and then across lanes.
static void emitSDDMM(Emitter &e, SDDMMOp op, Value output,
                      const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  const PatternView &view = patterns.at({op.getPattern(), false});
  Activations activations(op.getA().getType().getShape(), op.getFeatureDim());
  Type sumType = getSumType(e.b, {op.getA().getType(), op.getB().getType(),
                                  op.getValues().getType()});
  Type outType = op.getValues().getType().getElementType();
  int64_t blockRows = pattern.getBlockRows(),
          blockCols = pattern.getBlockCols();
  int64_t rows = getDivisor(blockRows, Registers::tileRows);
  int64_t cols = getDivisor(blockCols, e.registers.tileVectors());
  int64_t tokens = activations.tokens;
  int64_t width = std::min<int64_t>(
      // Few sums in a tile: more vectors in flight.
      e.registers.lanes * std::max<int64_t>(1, 4 / (rows * cols)),
      llvm::bit_floor<uint64_t>(tokens));

  emitParallel(e, pattern.getGridRows(), [&](ArrayRef<Index> item) {
    Index line = item.front();
    forBlocks(e, view, line, {}, [&](Index slot, Index position, ValueRange) {
      e.nest(
          {blockRows / rows, blockCols / cols}, {},
          [&](ArrayRef<Index> tile, ValueRange) {
            Index row = e.multiplyAdd(tile[0], rows, Index::constant(0));
            Index col = e.multiplyAdd(tile[1], cols, Index::constant(0));
            Index aRow = e.multiplyAdd(line, blockRows, row);
            Index bRow = e.multiplyAdd(position, blockCols, col);
            SmallVector<Value> totals;
            int64_t done = 0;
            for (int64_t size = width; size; size /= 2) {
              int64_t chunks = (tokens - done) / size;
              if (!chunks)
                continue;
              e.width = size;
              SmallVector<int64_t> extents(activations.leading);
              extents.push_back(chunks);
              SmallVector<Value> sums = e.nest(
                  extents, getZeros(e, sumType, rows * cols),
                  [&](ArrayRef<Index> ivs, ValueRange carried) {
                    Index lane =
                        e.multiplyAdd(ivs.back(), size, Index::constant(done));
                    lane.lanes = size > 1;
                    SmallVector<Value> as, bs, next;
                    auto read = [&](Value tensor, Index feature) {
                      return e.read(tensor, activations.at(ivs.drop_back(),
                                                           feature, lane));
                    };
                    for (int64_t i = 0; i != rows; ++i)
                      as.push_back(read(op.getA(), aRow.plus(i)));
                    for (int64_t j = 0; j != cols; ++j)
                      bs.push_back(read(op.getB(), bRow.plus(j)));
                    for (int64_t i = 0; i != rows; ++i)
                      for (int64_t j = 0; j != cols; ++j)
                        next.push_back(multiplyAdd(e, as[i], bs[j],
                                                   carried[i * cols + j]));
                    return next;
                  });
              e.width = 1;
              for (auto [number, sum] : llvm::enumerate(sums)) {
                sum = e.sumLanes(sum);
                if (done == 0)
                  totals.push_back(sum);
                else
                  totals[number] =
                      arith::AddFOp::create(e.b, e.loc, totals[number], sum);
              }
              done += chunks * size;
            }
            for (auto [number, total] : llvm::enumerate(totals))
              e.store(e.convert(total, outType), output,
                      {slot, row.plus(number / cols), col.plus(number % cols)});
            return SmallVector<Value>();
          });
      return SmallVector<Value>();
    });
  });
}

/// A work item is a line of blocks of the dense matrix: background, then
/// blocks.
static void emitToDense(Emitter &e, ToDenseOp op, Value output,
                        const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  bool transpose = op.getTranspose();
  const PatternView &view = patterns.at({op.getPattern(), transpose});
  int64_t lines = transpose ? pattern.getGridCols() : pattern.getGridRows();
  int64_t height = transpose ? pattern.getBlockCols() : pattern.getBlockRows();
  int64_t length = transpose ? pattern.getBlockRows() : pattern.getBlockCols();
  RankedTensorType type = op.getDense().getType();
  emitParallel(e, lines, [&](ArrayRef<Index> item) {
    Index line = item.front();
    Value background =
        op.getBackground()
            ? e.read(op.getBackground(), {})
            : arith::ConstantOp::create(e.b, e.loc,
                                        e.b.getZeroAttr(type.getElementType()));
    auto rowOf = [&](Index i) { return e.multiplyAdd(line, height, i); };
    e.loop(height, {}, [&](Index i, ValueRange) {
      e.forLanes(e.constant(0), type.getDimSize(1), e.registers.lanes,
                 [&](Index j) {
                   e.store(background, output, {rowOf(i), j});
                 });
      return SmallVector<Value>();
    });
    forBlocks(e, view, line, {}, [&](Index slot, Index position, ValueRange) {
      e.nest({height, length}, {}, [&](ArrayRef<Index> at, ValueRange) {
        SmallVector<Index> entry{slot, at[0], at[1]};
        if (transpose)
          std::swap(entry[1], entry[2]);
        e.store(e.read(op.getValues(), entry), output,
                {rowOf(at[0]), e.multiplyAdd(position, length, at[1])});
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    });
  });
}

/// A work item is a block row.
static void emitSample(Emitter &e, SampleOp op, Value output,
                       const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  const PatternView &view = patterns.at({op.getPattern(), false});
  emitParallel(e, pattern.getGridRows(), [&](ArrayRef<Index> item) {
    forBlocks(
        e, view, item.front(), {}, [&](Index slot, Index position, ValueRange) {
          e.nest(
              {pattern.getBlockRows(), pattern.getBlockCols()}, {},
              [&](ArrayRef<Index> at, ValueRange) {
                SmallVector<Index> entry{
                    e.multiplyAdd(item.front(), pattern.getBlockRows(), at[0]),
                    e.multiplyAdd(position, pattern.getBlockCols(), at[1])};
                if (op.getTranspose())
                  std::swap(entry[0], entry[1]);
                e.store(e.read(op.getDense(), entry), output,
                        {slot, at[0], at[1]});
                return SmallVector<Value>();
              });
          return SmallVector<Value>();
        });
  });
}

static void emitLive(Emitter &e, LiveOp op, Value output,
                     const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  const PatternView &view = patterns.at({op.getPattern(), false});
  auto constant = [&](bool value) {
    return arith::ConstantOp::create(e.b, e.loc, e.b.getBoolAttr(value));
  };
  e.loop(pattern.getSlots(), {}, [&](Index slot, ValueRange) {
    e.store(constant(false), output, slot);
    return SmallVector<Value>();
  });
  e.loop(pattern.getGridRows(), {}, [&](Index line, ValueRange) {
    return forBlocks(e, view, line, {}, [&](Index slot, Index, ValueRange) {
      e.store(constant(true), output, slot);
      return SmallVector<Value>();
    });
  });
}

static void emitNumAbsent(Emitter &e, NumAbsentOp op, Value output,
                          const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  const PatternView &view = patterns.at({op.getPattern(), false});
  Value blocks = loadIndex(e, view.ptr, Index::constant(pattern.getGridRows()));
  Value stored = arith::MulIOp::create(
      e.b, e.loc, blocks,
      e.constant(pattern.getBlockRows() * pattern.getBlockCols()));
  Value absent = arith::SubIOp::create(
      e.b, e.loc, e.constant(pattern.getRows() * pattern.getCols()), stored);
  Value integer =
      arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), absent);
  Value count = arith::SIToFPOp::create(
      e.b, e.loc, op.getCount().getType().getElementType(), integer);
  e.store(count, output, {});
}

/// A work item is a chunk of features: it clears its columns of all rows, then
/// adds the updates in order.
static void emitScatterAdd(Emitter &e, ScatterAddOp op, Value output) {
  RankedTensorType rows = op.getRows().getType();
  ArrayRef<int64_t> tokens =
      cast<RankedTensorType>(op.getIndices().getType()).getShape();
  int64_t features = rows.getDimSize(1);
  int64_t chunk = std::min<int64_t>(2 * e.registers.lanes,
                                    llvm::bit_floor<uint64_t>(features));
  auto emitChunk = [&](Value low, int64_t extent) {
    Value zero = arith::ConstantOp::create(
        e.b, e.loc, e.b.getZeroAttr(rows.getElementType()));
    e.loop(rows.getDimSize(0), {}, [&](Index row, ValueRange) {
      e.forLanes(low, extent, chunk, [&](Index f) {
        e.store(zero, output, {row, f});
      });
      return SmallVector<Value>();
    });
    e.nest(tokens, {}, [&](ArrayRef<Index> at, ValueRange) {
      Value row = arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(),
                                             e.read(op.getIndices(), at));
      // Unsigned: a negative index is too large as well.
      Value inside =
          arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult, row,
                                e.constant(rows.getDimSize(0)));
      auto guard = scf::IfOp::create(e.b, e.loc, inside);
      e.scope([&] {
        e.b.setInsertionPointToStart(guard.thenBlock());
        e.forLanes(low, extent, chunk, [&](Index f) {
          SmallVector<Index> from(at);
          from.insert(from.begin() + op.getFeatureDim(), f);
          Value update = e.broadcast(e.read(op.getUpdates(), from));
          SmallVector<Index> to{Index::of(row), f};
          Value sum = e.load(output, to);
          e.store(arith::AddFOp::create(e.b, e.loc, sum, update), output, to);
        });
      });
      return SmallVector<Value>();
    });
  };
  emitParallel(e, features / chunk, [&](ArrayRef<Index> item) {
    Index low = e.multiplyAdd(item.front(), chunk, Index::constant(0));
    emitChunk(e.materialize(low), chunk);
  });
  if (features % chunk)
    emitChunk(e.constant(features - features % chunk), features % chunk);
}

void bsr::emitSparse(Emitter &e, Operation *op, Value output,
                     const PatternViews &patterns) {
  TypeSwitch<Operation *>(op)
      .Case([&](SpMMOp op) { emitSpMM(e, op, output, patterns); })
      .Case([&](SDDMMOp op) { emitSDDMM(e, op, output, patterns); })
      .Case([&](ToDenseOp op) { emitToDense(e, op, output, patterns); })
      .Case([&](SampleOp op) { emitSample(e, op, output, patterns); })
      .Case([&](LiveOp op) { emitLive(e, op, output, patterns); })
      .Case([&](NumAbsentOp op) { emitNumAbsent(e, op, output, patterns); })
      .Case([&](ScatterAddOp op) { emitScatterAdd(e, op, output); });
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for the products and the other operations of the dialect.

#include "SparseKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::bsr;

std::optional<View> bsr::getWalkedView(Operation *op) {
  return TypeSwitch<Operation *, std::optional<View>>(op)
      .Case([](SpMMOp op) { return getView(!op.getTranspose()); })
      .Case([](ToDenseOp op) { return getView(op.getTranspose()); })
      .Case([](SDDMMOp op) { return getWalkedView(op); })
      .Case([](ReduceVecOp op) { return getView(op.getDim() == 1); })
      .Case<SampleOp, SampleVecOp, LiveOp, NumAbsentOp>(
          [](auto) { return View::Rows; })
      .Default(std::nullopt);
}

Type bsr::getSumType(OpBuilder &b, TypeRange types) {
  bool isDouble = llvm::any_of(
      types, [](Type t) { return getElementTypeOrSelf(t).isF64(); });
  return isDouble ? b.getF64Type() : b.getF32Type();
}

Value bsr::loadIndex(Emitter &e, Value array, Index at) {
  Value value = memref::LoadOp::create(e.b, e.loc, array, e.materialize(at));
  return arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), value);
}

SmallVector<Value> bsr::forBlocks(
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

Value bsr::multiplyAdd(Emitter &e, Value a, Value c, Value sum) {
  Type type = getElementTypeOrSelf(sum.getType());
  Value product =
      arith::MulFOp::create(e.b, e.loc, e.broadcast(e.convert(a, type)),
                            e.broadcast(e.convert(c, type)));
  return arith::AddFOp::create(e.b, e.loc, product, sum);
}

SmallVector<Value> bsr::getZeros(Emitter &e, Type type, int64_t count) {
  Value zero = arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(type));
  return SmallVector<Value>(count, e.broadcast(zero));
}

void bsr::forLines(Emitter &e, const PatternView &view, int64_t lines,
                   int64_t parts, Index part,
                   llvm::function_ref<void(Index)> body) {
  if (parts == lines)
    return body(part);
  if (parts == 1) {
    e.loop(lines, {}, [&](Index line, ValueRange) {
      body(line);
      return SmallVector<Value>();
    });
    return;
  }
  auto work = [&](Value line) -> Value {
    return arith::AddIOp::create(e.b, e.loc,
                                 loadIndex(e, view.ptr, Index::of(line)), line);
  };
  Value total = work(e.constant(lines));
  // The first line that has at least a share of `number` parts before it.
  auto find = [&](Index number) {
    Value goal = arith::DivUIOp::create(
        e.b, e.loc,
        arith::MulIOp::create(e.b, e.loc, total, e.materialize(number)),
        e.constant(parts));
    return e.loop(
        e.constant(0), e.constant(llvm::Log2_64_Ceil(lines + 1)), 1,
        {e.constant(0), e.constant(lines)}, [&](Value, ValueRange range) {
          Value sum = arith::AddIOp::create(e.b, e.loc, range[0], range[1]);
          Value middle = arith::DivUIOp::create(e.b, e.loc, sum, e.constant(2));
          Value above =
              arith::AddIOp::create(e.b, e.loc, middle, e.constant(1));
          Value less = arith::CmpIOp::create(
              e.b, e.loc, arith::CmpIPredicate::ult, work(middle), goal);
          return SmallVector<Value>{
              arith::SelectOp::create(e.b, e.loc, less, above, range[0]),
              arith::SelectOp::create(e.b, e.loc, less, range[1], middle)};
        })[0];
  };
  e.loop(find(part), find(part.plus(1)), 1, {}, [&](Value line, ValueRange) {
    body(Index::of(line));
    return SmallVector<Value>();
  });
}

int64_t bsr::getParts(int64_t lines, int64_t others) {
  return std::min<int64_t>(lines, llvm::divideCeil(minItems, others));
}

/// Gathers: a work item is a row of register tiles of lanes of one token slice,
/// and lines of blocks of the output. For each line it walks the stored blocks,
/// with a register tile of `rows` features x `panels` panels of sums. So many
/// blocks at a time as the cache holds, for all tiles of the line; in between
/// the sums are where they end up.
void bsr::emitSpMM(Emitter &e, SpMMOp op, Value output,
                   const PatternViews &patterns, Finish finish) {
  PatternType pattern = op.getPattern().getType();
  bool transpose = op.getTranspose();
  View walked = getView(!transpose);
  const PatternView &view = patterns.at({op.getPattern(), walked});
  Activations activations(op.getX().getType().getShape(), op.getFeatureDim());
  int64_t lines = pattern.getNumLines(walked);
  int64_t outBlock = pattern.getBlockExtent(walked);
  int64_t inBlock = pattern.getBlockExtent(getOther(walked));
  Type sumType = getSumType(e.b, {op.getValues().getType(), op.getX().getType(),
                                  op.getY().getType()});
  Type outType = op.getY().getType().getElementType();

  // The first tile of a line asks for what the next block needs, if the block
  // is worth the instructions.
  bool asks = inBlock * outBlock >= 16;
  SmallVector<Tiles, 2> tiles = spread(outBlock, CPUTarget::tileRows);
  if (tiles.front().count > 1) {
    auto [base, size, count] = tiles.front();
    tiles.front().count = 1;
    tiles.insert(tiles.begin() + 1, {base + size, size, count - 1});
  }
  int64_t panel = e.target.panel();
  // Lines that are too low for a tile of their own take several panels.
  int64_t panels = std::max<int64_t>(1, 4 / outBlock);
  int64_t unroll = getDivisor(inBlock, 4);
  int64_t bytes = 4 * inBlock * (panels * panel + outBlock);
  int64_t blocks = std::max<int64_t>(1, e.target.sweptBytes() / bytes);
  // One tile a line reads each block once.
  bool isWidened = sumType != op.getValues().getType().getElementType();
  bool isRounded = sumType != outType;
  if (tiles.size() == 1 || ((isWidened || isRounded) && !e.hasStack))
    blocks = 0;
  // Of halves, a work item has the values of a round as they are multiplied,
  // [blocks, entries], converted once for all tiles, and the sums of a line,
  // [features, lanes], rounded once.
  Value wide, total;
  auto allocate = [&] {
    if (blocks && isWidened)
      wide = e.allocate({blocks, inBlock * outBlock}, sumType);
    if (blocks && isRounded)
      total = e.allocate({outBlock, panel}, sumType);
  };

  // One line, for `lanes.size()` vectors of `e.width` lanes.
  auto emitSums = [&](ArrayRef<Index> leading, Index line,
                      ArrayRef<Index> lanes) {
    auto place = [&](Index feature, Index lane) {
      return activations.at(leading, feature, lane);
    };
    auto outPlace = [&](Index first, int64_t number) {
      Index feature =
          e.multiplyAdd(line, outBlock, first.plus(number / lanes.size()));
      return place(feature, lanes[number % lanes.size()]);
    };
    // Where the sums of `outPlace(first, number)` are between rounds.
    auto sumPlace = [&](Index first, int64_t number) {
      if (!total)
        return outPlace(first, number);
      Index lane = Index::constant(0);
      lane.lanes = e.width > 1;
      return SmallVector<Index>{first.plus(number), lane};
    };
    // Entry (row, col) of a block in `wide`.
    auto getEntry = [&](Index row, Index col) {
      Index entry = e.multiplyAdd(row, pattern.getBlockCols(), col);
      entry.lanes = col.lanes;
      return entry;
    };
    auto widen = [&](Value from, Value to) {
      e.loop(from, to, 1, {}, [&](Value block, ValueRange) {
        Index slot = Index::of(loadIndex(e, view.slot, Index::of(block)));
        Index number =
            Index::of(arith::SubIOp::create(e.b, e.loc, block, from));
        e.loop(pattern.getBlockRows(), {}, [&](Index row, ValueRange) {
          e.forLanes(e.constant(0), pattern.getBlockCols(), e.target.lanes,
                     [&](Index col) {
                       Value value = e.read(op.getValues(), {slot, row, col});
                       e.store(e.convert(value, sumType), wide,
                               {number, getEntry(row, col)});
                     });
          return SmallVector<Value>();
        });
        return SmallVector<Value>();
      });
    };
    auto emitTile = [&](Index first, int64_t rows, bool isFirst, Value low,
                        Value high, ValueRange inits) {
      auto emitBlock = [&](Value block, ValueRange outer) {
        Index slot = Index::of(loadIndex(e, view.slot, Index::of(block)));
        Index position = Index::of(loadIndex(e, view.idx, Index::of(block)));
        Index nextSlot, nextPosition, number;
        if (wide)
          number = Index::of(arith::SubIOp::create(e.b, e.loc, block, low));
        if (isFirst) {
          Index next = Index::of(arith::MinUIOp::create(
              e.b, e.loc, e.materialize(Index::of(block).plus(1)),
              e.constant(pattern.getSlots() - 1)));
          nextSlot = Index::of(loadIndex(e, view.slot, next));
          nextPosition = Index::of(loadIndex(e, view.idx, next));
        }
        auto emitSteps = [&](Index step, ValueRange carried) {
          SmallVector<Value> sums(carried);
          Index from = e.multiplyAdd(step, unroll, Index::constant(0));
          if (isFirst && !wide)
            e.prefetch(op.getValues(),
                       {nextSlot, Index::constant(0),
                        e.multiplyAdd(from, outBlock, Index::constant(0))},
                       unroll * outBlock);
          for (int64_t i = 0; i != unroll; ++i) {
            Index k = from.plus(i);
            SmallVector<Value> xs;
            for (Index lane : lanes)
              xs.push_back(e.read(
                  op.getX(), place(e.multiplyAdd(position, inBlock, k), lane)));
            if (isFirst) {
              for (Index lane : lanes)
                e.prefetch(op.getX(),
                           place(e.multiplyAdd(nextPosition, inBlock, k),
                                 lane.scalar()),
                           e.width);
            }
            for (int64_t row = 0; row != rows; ++row) {
              SmallVector<Index> entry{slot, k, first.plus(row)};
              if (transpose)
                std::swap(entry[1], entry[2]);
              Value w =
                  wide ? e.load(wide, {number, getEntry(entry[1], entry[2])})
                       : e.read(op.getValues(), entry);
              for (auto [number, x] : llvm::enumerate(xs)) {
                Value &sum = sums[row * lanes.size() + number];
                sum = multiplyAdd(e, w, x, sum);
              }
            }
          }
          return sums;
        };
        return e.loop(inBlock / unroll, outer, emitSteps);
      };
      SmallVector<Value> sums = e.loop(low, high, 1, inits, emitBlock);
      for (auto [number, sum] : llvm::enumerate(sums))
        if (total)
          e.store(sum, total, sumPlace(first, number));
        else
          e.store(e.convert(sum, outType), output, outPlace(first, number));
    };
    auto forTiles = [&](llvm::function_ref<void(Index, int64_t, bool)> body) {
      for (const Tiles &group : tiles)
        e.loop(group.count, {}, [&](Index tile, ValueRange) {
          body(e.multiplyAdd(tile, group.size, Index::constant(group.base)),
               group.size, group.base == 0 && asks);
          return SmallVector<Value>();
        });
    };
    Value low = loadIndex(e, view.ptr, line);
    Value high = loadIndex(e, view.ptr, line.plus(1));
    auto getStart = [&](Index first, int64_t rows) {
      if (!op.getBias())
        return getZeros(e, sumType, rows * lanes.size());
      SmallVector<Value> start;
      for (int64_t row = 0; row != rows; ++row) {
        Index feature = e.multiplyAdd(line, outBlock, first.plus(row));
        start.append(
            lanes.size(),
            e.broadcast(e.convert(e.read(op.getBias(), {feature}), sumType)));
      }
      return start;
    };
    if (!blocks)
      return forTiles([&](Index first, int64_t rows, bool isFirst) {
        emitTile(first, rows, isFirst, low, high, getStart(first, rows));
      });
    // A line without blocks is a round as well: it writes what
    // sums start from.
    Value end = arith::MaxUIOp::create(e.b, e.loc, high,
                                       e.materialize(Index::of(low).plus(1)));
    e.loop(low, end, blocks, {}, [&](Value from, ValueRange) {
      Value to = arith::MinUIOp::create(
          e.b, e.loc, e.materialize(Index::of(from).plus(blocks)), high);
      Value isFirstRound = arith::CmpIOp::create(
          e.b, e.loc, arith::CmpIPredicate::eq, from, low);
      if (wide)
        widen(from, to);
      forTiles([&](Index first, int64_t rows, bool isFirst) {
        SmallVector<Value> inits;
        for (auto [number, start] : llvm::enumerate(getStart(first, rows)))
          inits.push_back(arith::SelectOp::create(
              e.b, e.loc, isFirstRound, start,
              e.load(total ? total : output, sumPlace(first, number))));
        emitTile(first, rows, isFirst, from, to, inits);
      });
      return SmallVector<Value>();
    });
    if (total)
      e.loop(outBlock, {}, [&](Index row, ValueRange) {
        e.store(e.convert(e.load(total, sumPlace(row, 0)), outType), output,
                outPlace(row, 0));
        return SmallVector<Value>();
      });
  };

  // `number` is that of the first vector.
  auto emitLine = [&](ArrayRef<Index> leading, Index line,
                      ArrayRef<Index> lanes, Index number) {
    emitSums(leading, line, lanes);
    if (!finish)
      return;
    e.loop(outBlock, {}, [&](Index row, ValueRange) {
      Index feature = e.multiplyAdd(line, outBlock, row);
      for (auto [vector, lane] : llvm::enumerate(lanes))
        finish(activations.at(leading, feature, lane), number.plus(vector));
      return SmallVector<Value>();
    });
  };

  // Full register tiles of lanes, then what is left, in powers of two.
  int64_t tokens = activations.tokens, tile = panels * panel;
  using ForLanes = llvm::function_ref<void(ArrayRef<Index>, Index)>;
  auto emitItems = [&](int64_t tiles,
                       llvm::function_ref<void(Index, ForLanes)> forLanes) {
    SmallVector<int64_t> extents(activations.leading);
    int64_t others = tiles;
    for (int64_t extent : extents)
      others *= extent;
    int64_t parts = getParts(lines, others);
    extents.append({tiles, parts});
    emitParallel(e, extents, [&](ArrayRef<Index> at) {
      allocate();
      forLines(e, view, lines, parts, at.back(), [&](Index line) {
        forLanes(at[at.size() - 2], [&](ArrayRef<Index> lanes, Index number) {
          emitLine(at.drop_back(2), line, lanes, number);
        });
      });
    });
  };
  if (int64_t tiles = tokens / tile)
    emitItems(tiles, [&](Index item, auto body) {
      e.width = panel;
      SmallVector<Index> lanes;
      for (int64_t number = 0; number != panels; ++number) {
        Index lane = e.multiplyAdd(item, tile, Index::constant(number * panel));
        lane.lanes = panel > 1;
        lane.align = panel;
        lanes.push_back(lane);
      }
      body(lanes, e.multiplyAdd(item, panels, Index::constant(0)));
      e.width = 1;
    });
  if (tokens % tile)
    emitItems(1, [&](Index, auto body) {
      int64_t first = tokens - tokens % tile, number = first / panel;
      for (const Tiles &vectors : getVectors(tokens % tile, panel)) {
        for (int64_t at : llvm::seq(vectors.count)) {
          Value base = e.constant(first + vectors.base + at * vectors.size);
          Index lane = Index::of(base, vectors.size > 1, vectors.size);
          e.width = vectors.size;
          e.scope([&] { body(lane, Index::constant(number++)); });
        }
      }
      e.width = 1;
    });
}

/// A work item is a line of blocks of the dense matrix: background, then
/// blocks.
static void emitToDense(Emitter &e, ToDenseOp op, Value output,
                        const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  bool transpose = op.getTranspose();
  View walked = getView(transpose);
  const PatternView &view = patterns.at({op.getPattern(), walked});
  int64_t lines = pattern.getNumLines(walked);
  int64_t height = pattern.getBlockExtent(walked);
  int64_t length = pattern.getBlockExtent(getOther(walked));
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
      e.forLanes(e.constant(0), type.getDimSize(1), e.target.lanes,
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
  const PatternView &view = patterns.at({op.getPattern(), View::Rows});
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
  const PatternView &view = patterns.at({op.getPattern(), View::Rows});
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
  const PatternView &view = patterns.at({op.getPattern(), View::Rows});
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
  int64_t chunk = std::min<int64_t>(2 * e.target.lanes,
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
      .Case([&](BlockScoresOp op) { emitBlockScores(e, op, output); })
      .Case([&](ToDenseOp op) { emitToDense(e, op, output, patterns); })
      .Case([&](SampleOp op) { emitSample(e, op, output, patterns); })
      .Case([&](SampleVecOp op) { emitSampleVec(e, op, output, patterns); })
      .Case([&](ReduceVecOp op) { emitReduceVec(e, op, output, patterns); })
      .Case([&](LiveOp op) { emitLive(e, op, output, patterns); })
      .Case([&](NumAbsentOp op) { emitNumAbsent(e, op, output, patterns); })
      .Case([&](ScatterAddOp op) { emitScatterAdd(e, op, output); });
}

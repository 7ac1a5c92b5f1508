// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order in which a kernel goes through single weights.

#include "WeightOrder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Vectors of tokens that a weight is multiplied by at once.
static constexpr int64_t weightVectors = 4;
/// Tokens, at least: the order costs as much as 100 to 200 of them. And tiles
/// of these, which are work items.
static constexpr int64_t minTokens = 1024, minTiles = 16;
/// Parts of the lines of a product that makes weights, at least, and bytes of
/// the weights of a part, at most.
static constexpr int64_t minParts = 16, maxPartBytes = 1 << 20;
/// Rows that 16 bits tell apart.
static constexpr int64_t maxRows = 1 << 16;
/// Weights whose rows are loaded at once.
static constexpr int64_t rowsTogether = 4;
/// Weights of a line in a chunk, at least: its sums are read and written there.
/// And how many times as many features as the first-level cache holds a chunk
/// may have for that.
static constexpr int64_t minWeights = 10, maxGrowth = 4;
/// When weights are put in order, how many spans later the weights are read
/// that are prefetched, as many of each: spans of a run are anywhere.
static constexpr int64_t spansAhead = 8, spanPrefetched = 32;

std::optional<WeightOrder> WeightOrder::match(Operation *op, CPUTarget target) {
  return isa<SpMMOp, SDDMMOp>(op) &&
                 getSchedule(op, target).walk == Walk::SingleWeights
             ? find(op, target)
             : std::nullopt;
}

std::optional<WeightOrder> WeightOrder::find(Operation *op, CPUTarget target) {
  auto spmm = dyn_cast<SpMMOp>(op);
  auto sddmm = dyn_cast<SDDMMOp>(op);
  PatternType pattern =
      spmm ? spmm.getPattern().getType() : sddmm.getPattern().getType();
  Value x = spmm ? spmm.getX() : sddmm.getA();
  int64_t featureDim = spmm ? spmm.getFeatureDim() : sddmm.getFeatureDim();
  int64_t numBatchDims =
      spmm ? spmm.getNumBatchDims() : sddmm.getNumBatchDims();
  Activations activations(cast<RankedTensorType>(x.getType()).getShape(),
                          featureDim);
  auto isF32 = [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return !tensor || tensor.getElementType().isF32();
  };
  if (pattern.getBlockRows() != 1 || pattern.getBlockCols() != 1 ||
      numBatchDims || !activations.hasLanes ||
      !llvm::all_of(op->getOperandTypes(), isF32) ||
      !llvm::all_of(op->getResultTypes(), isF32))
    return std::nullopt;
  View walked = sddmm ? cpu::getWalkedView(sddmm, Walk::SingleWeights, target)
                      : *getLineView(op);
  WeightOrder order(pattern, walked, sddmm);
  order.panels = std::max<int64_t>(1, weightVectors / target.tileVectors());
  int64_t tile = order.getTile(target);
  if (activations.tokens % tile)
    return std::nullopt;
  // The rows of a chunk take the first-level cache. Where a line costs more,
  // its row and what is summed up across lanes, some of them stay in the second
  // one: measured, half as much again is best.
  int64_t bytes = sddmm ? target.firstCache / 2 * 3 : target.firstCache;
  int64_t limit = std::clamp<int64_t>(bytes / (4 * tile), 1, maxRows);
  order.chunks = llvm::divideCeil(order.features, limit);
  // Where a line has few weights, what it costs to begin one is more than rows
  // from the second-level cache.
  if (target.streamsFromSecond()) {
    int64_t most = pattern.getSlots() / (minWeights * order.lines);
    int64_t least =
        llvm::divideCeil(order.features, std::min(maxGrowth * limit, maxRows));
    order.chunks = std::min(order.chunks, std::max(most, least));
  }
  order.chunk = llvm::divideCeil(order.features, order.chunks);
  order.chunks = llvm::divideCeil(order.features, order.chunk);
  int64_t tokens = llvm::product_of(activations.leading) * activations.tokens;
  order.isWorthIt =
      tokens >= std::max(minTokens, minTiles * tile) &&
      pattern.getSlots() >= minWeights * order.lines * order.chunks;
  if (sddmm) {
    // Parts are work items, whose sums lie on the stack.
    int64_t most =
        std::min(order.lines / minParts, maxPartBytes / (4 * order.features));
    order.partLines = getDivisor(order.lines, std::max<int64_t>(most, 1));
    order.parts = order.lines / order.partLines;
    if (2 * order.partLines < most || !most)
      return std::nullopt;
    return order;
  }
  // The sums of a part stay in the second-level cache.
  order.partLines = getDivisor(
      order.lines, std::max<int64_t>(1, target.rowBytes() / (4 * tile)));
  if (2 * order.partLines * 4 * tile < target.rowBytes())
    order.partLines = order.lines;
  order.parts = order.lines / order.partLines;
  return order;
}

SmallVector<MemRefType> WeightOrder::getScratch() const {
  MLIRContext *context = pattern.getContext();
  Type i32 = IntegerType::get(context, 32);
  SmallVector<MemRefType> types{
      MemRefType::get({lines, chunks + 1}, i32),
      MemRefType::get({parts, chunks, chunk + 2}, i32),
      MemRefType::get({parts, chunks, partLines}, i32),
      MemRefType::get({parts, chunks, partLines, 3}, i32),
      MemRefType::get(pattern.getSlots(), IntegerType::get(context, 16))};
  if (!areMade)
    types.push_back(
        MemRefType::get(pattern.getSlots(), Float32Type::get(context)));
  return types;
}

/// The number at `at` of an array.
static Value loadNumber(Emitter &e, Value array, ArrayRef<Index> at) {
  return arith::IndexCastUIOp::create(e.b, e.loc, e.b.getIndexType(),
                                      e.load(array, at));
}

static void storeNumber(Emitter &e, Value number, Value array,
                        ArrayRef<Index> at) {
  Type type = cast<MemRefType>(array.getType()).getElementType();
  e.store(arith::IndexCastUIOp::create(e.b, e.loc, type, number), array, at);
}

static Value add(Emitter &e, Value a, Value c) {
  return arith::AddIOp::create(e.b, e.loc, a, c);
}

static Value subtract(Emitter &e, Value a, Value c) {
  return arith::SubIOp::create(e.b, e.loc, a, c);
}

/// The first of the numbers from `low` on, below `high`, that is not `isLess`,
/// or `high`: less ones come first, and there are at most `extent`.
static Value findFirst(Emitter &e, Value low, Value high, int64_t extent,
                       llvm::function_ref<Value(Value)> isLess) {
  return e.loop(
      llvm::Log2_64_Ceil(extent + 1), {low, high},
      [&](Index, ValueRange range) {
        Value middle = arith::ShRUIOp::create(
            e.b, e.loc, add(e, range[0], range[1]), e.constant(1));
        Value isLeft = arith::CmpIOp::create(
            e.b, e.loc, arith::CmpIPredicate::ult, range[0], range[1]);
        Value isAbove =
            arith::AndIOp::create(e.b, e.loc, isLeft, isLess(middle));
        return SmallVector<Value>{
            arith::SelectOp::create(e.b, e.loc, isAbove,
                                    add(e, middle, e.constant(1)), range[0]),
            arith::SelectOp::create(e.b, e.loc, isAbove, range[1], middle)};
      })[0];
}

/// Finds where each chunk begins in each line, whose features ascend: each
/// weight writes where its chunk ends if it is the last one.
void WeightOrder::findStarts(Emitter &e, const PatternView &view) {
  int64_t groups = getDivisor(lines, minItems);
  e.forall(groups, [&](ArrayRef<Index> group) {
    e.loop(lines / groups, {}, [&](Index number, ValueRange) {
      Index line = e.multiplyAdd(group.front(), lines / groups, number);
      Value low = loadIndex(e, view.ptr, line);
      Value high = loadIndex(e, view.ptr, line.plus(1));
      e.loop(chunks + 1, {}, [&](Index number, ValueRange) {
        storeNumber(e, low, starts, {line, number});
        return SmallVector<Value>();
      });
      e.loop(low, high, 1, {}, [&](Value place, ValueRange) {
        Index at = Index::of(place);
        Value number = arith::DivUIOp::create(
            e.b, e.loc, loadIndex(e, view.idx, at), e.constant(chunk));
        storeNumber(e, add(e, place, e.constant(1)), starts,
                    {line, Index::of(number).plus(1)});
        return SmallVector<Value>();
      });
      // A chunk without weights ends where it begins.
      e.loop(chunks, low, [&](Index previous, ValueRange carried) {
        Value end = arith::MaxUIOp::create(
            e.b, e.loc, loadNumber(e, starts, {line, previous.plus(1)}),
            carried.front());
        storeNumber(e, end, starts, {line, previous.plus(1)});
        return SmallVector<Value>{end};
      });
      return SmallVector<Value>();
    });
  });
}

/// Sorts the lines of `piece` by their numbers of weights, by counting.
void WeightOrder::sortPiece(Emitter &e, const Piece &piece) {
  Index part = piece.part, chunkNumber = piece.chunk;
  auto getEnd = [&](Value count) {
    return SmallVector<Index>{part, chunkNumber, Index::of(count)};
  };
  e.loop(chunk + 2, {}, [&](Index count, ValueRange) {
    storeNumber(e, e.constant(0), ends, {part, chunkNumber, count});
    return SmallVector<Value>();
  });
  Index firstLine = e.multiplyAdd(part, partLines, Index::constant(0));
  auto getStart = [&](Index line, int64_t ahead) {
    return loadNumber(e, starts, {line, chunkNumber.plus(ahead)});
  };
  auto countOf = [&](Index line) {
    return subtract(e, getStart(line, 1), getStart(line, 0));
  };
  // How many lines have one weight less, and how many weights of the part are
  // in chunks before this one.
  Value zero = e.constant(0);
  SmallVector<Value> sums =
      e.loop(partLines, {zero, zero}, [&](Index number, ValueRange carried) {
        Index line = e.multiplyAdd(firstLine, 1, number);
        Value count = countOf(line);
        SmallVector<Index> place = getEnd(add(e, count, e.constant(1)));
        storeNumber(e, add(e, loadNumber(e, ends, place), e.constant(1)), ends,
                    place);
        Value before =
            subtract(e, getStart(line, 0),
                     loadNumber(e, starts, {line, Index::constant(0)}));
        return SmallVector<Value>{
            add(e, carried[0], before),
            arith::MaxUIOp::create(e.b, e.loc, carried[1], count)};
      });
  e.loop(chunk + 2, zero, [&](Index count, ValueRange before) {
    SmallVector<Index> place{part, chunkNumber, count};
    Value sum = add(e, before.front(), loadNumber(e, ends, place));
    storeNumber(e, sum, ends, place);
    return SmallVector<Value>{sum};
  });
  // Where a run begins moves on with each line, to where it ends.
  e.loop(partLines, {}, [&](Index number, ValueRange) {
    Index line = e.multiplyAdd(firstLine, 1, number);
    Value count = countOf(line);
    Value at = loadNumber(e, ends, getEnd(count));
    storeNumber(e, add(e, at, e.constant(1)), ends, getEnd(count));
    storeNumber(e, e.materialize(line), order,
                {part, chunkNumber, Index::of(at)});
    auto setSpan = [&](Value value, int64_t field) {
      storeNumber(e, value, spans,
                  {part, chunkNumber, Index::of(at), Index::constant(field)});
    };
    setSpan(getStart(line, 0), 0);
    setSpan(count, 2);
    return SmallVector<Value>();
  });
  storeNumber(e, sums[1], ends,
              {part, chunkNumber, Index::constant(chunk + 1)});
  Value first =
      add(e, loadNumber(e, starts, {firstLine, Index::constant(0)}), sums[0]);
  e.loop(partLines, first, [&](Index number, ValueRange place) {
    SmallVector<Index> at{part, chunkNumber, number, Index::constant(1)};
    storeNumber(e, place.front(), spans, at);
    at.back() = Index::constant(2);
    return SmallVector<Value>{add(e, place.front(), loadNumber(e, spans, at))};
  });
}

/// Puts the weights in order whose places are in one of `minItems` slices: one
/// span after the other, whose loops are of one length in a run.
void WeightOrder::gather(Emitter &e, const PatternView &view, Value values,
                         Index slice) {
  int64_t size = llvm::divideCeil(pattern.getSlots(), minItems);
  int64_t numSpans = parts * chunks * partLines;
  Value flat = memref::CollapseShapeOp::create(
      e.b, e.loc, spans, ArrayRef<ReassociationIndices>{{0, 1, 2}, {3}});
  auto getSpan = [&](Value number, int64_t field) {
    return loadNumber(e, flat, {Index::of(number), Index::constant(field)});
  };
  Value total = loadIndex(e, view.ptr, Index::constant(lines));
  Index first = e.multiplyAdd(slice, size, Index::constant(0));
  Value low = e.materialize(first);
  Value high = arith::MinUIOp::create(e.b, e.loc,
                                      e.materialize(first.plus(size)), total);
  // The first span that begins at `limit` or later.
  auto findSpan = [&](Value limit) {
    return findFirst(
        e, e.constant(0), e.constant(numSpans), numSpans, [&](Value number) {
          Value inside = arith::MinUIOp::create(e.b, e.loc, number,
                                                e.constant(numSpans - 1));
          return arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult,
                                       getSpan(inside, 1), limit);
        });
  };
  auto prefetch = [&](Value place) {
    for (int64_t first = 0; first != spanPrefetched; first += lineBytes / 4) {
      Index at[] = {Index::of(place).plus(first)};
      e.prefetchMemory(view.idx, at, 1, /*isWrite=*/false);
      if (!areMade)
        e.prefetchMemory(view.slot, at, 1, /*isWrite=*/false);
    }
  };
  // One before it may reach into the slice.
  Value before = findSpan(e.materialize(first.plus(1)));
  Value from = subtract(e, before, e.constant(1));
  e.loop(from, findSpan(high), 1, {}, [&](Value number, ValueRange) {
    Value begin = getSpan(number, 1);
    Value end = add(e, begin, getSpan(number, 2));
    Value behind = subtract(e, getSpan(number, 0), begin);
    Index of =
        e.split(e.split(Index::of(number), partLines).first, chunks).second;
    Value base = e.materialize(getBase(e, of));
    prefetch(getSpan(arith::MinUIOp::create(
                         e.b, e.loc, add(e, number, e.constant(spansAhead)),
                         e.constant(numSpans - 1)),
                     0));
    Value start = arith::MaxUIOp::create(e.b, e.loc, low, begin);
    Value stop = arith::MinUIOp::create(e.b, e.loc, high, end);
    e.loop(start, stop, 1, {}, [&](Value place, ValueRange) {
      Index source = Index::of(add(e, behind, place));
      Value feature = loadIndex(e, view.idx, source);
      storeNumber(e, subtract(e, feature, base), rows, Index::of(place));
      if (!areMade) {
        Index slot = Index::of(loadIndex(e, view.slot, source));
        e.store(e.read(values, {slot, Index::constant(0), Index::constant(0)}),
                weights, Index::of(place));
      }
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
}

void WeightOrder::emit(Emitter &e, const PatternView &view, Value values,
                       ValueRange scratch) {
  starts = scratch[0];
  ends = scratch[1];
  order = scratch[2];
  spans = scratch[3];
  rows = scratch[4];
  if (!areMade)
    weights = scratch[5];
  findStarts(e, view);
  e.forall({parts, chunks}, [&](ArrayRef<Index> at) {
    sortPiece(e, {at[0], at[1]});
  });
  e.forall(minItems, [&](ArrayRef<Index> slice) {
    gather(e, view, values, slice.front());
  });
}

void WeightOrder::forRuns(Emitter &e, const Piece &piece, int64_t least,
                          RunBody body) {
  auto getEnd = [&](Index count) {
    return loadNumber(e, ends, {piece.part, piece.chunk, count});
  };
  Value end = add(e, getEnd(Index::constant(chunk + 1)), e.constant(1));
  Value first = least ? getEnd(Index::constant(least - 1)) : e.constant(0);
  Value place = loadNumber(
      e, spans,
      {piece.part, piece.chunk, Index::constant(0), Index::constant(1)});
  e.loop(e.constant(least), end, 1, {first, place},
         [&](Value count, ValueRange carried) {
           Value to = getEnd(Index::of(count));
           body(count, carried[0], to, carried[1]);
           Value taken = arith::MulIOp::create(e.b, e.loc, count,
                                               subtract(e, to, carried[0]));
           return SmallVector<Value>{to, add(e, carried[1], taken)};
         });
}

Index WeightOrder::getLine(Emitter &e, const Piece &piece, Index number) {
  return Index::of(loadNumber(e, order, {piece.part, piece.chunk, number}));
}

Index WeightOrder::getBase(Emitter &e, Index number) {
  return features <= maxRows ? Index::constant(0)
                             : e.multiplyAdd(number, chunk, Index::constant(0));
}

SmallVector<Index> WeightOrder::getFeatures(Emitter &e, const Piece &piece,
                                            Index place, int64_t count) {
  SmallVector<Index> features;
  auto add = [&](Value row) {
    features.push_back(
        e.multiplyAdd(getBase(e, piece.chunk), 1, Index::of(row)));
  };
  if (count != rowsTogether) {
    for (int64_t i = 0; i != count; ++i)
      add(loadNumber(e, rows, place.plus(i)));
    return features;
  }
  // One load of 64 bits has four of them.
  llvm::SaveAndRestore width(e.width, rowsTogether);
  place.lanes = true;
  Value four = e.load(rows, place);
  Type i64 = e.b.getI64Type();
  Value packed =
      vector::BitCastOp::create(e.b, e.loc, VectorType::get({1}, i64), four);
  packed = vector::ExtractOp::create(e.b, e.loc, packed, 0);
  auto constant = [&](int64_t value) {
    return arith::ConstantOp::create(e.b, e.loc, e.b.getI64IntegerAttr(value));
  };
  for (int64_t i = 0; i != rowsTogether; ++i) {
    Value row = arith::ShRUIOp::create(e.b, e.loc, packed, constant(16 * i));
    row = arith::AndIOp::create(e.b, e.loc, row, constant(0xffff));
    add(arith::IndexCastUIOp::create(e.b, e.loc, e.b.getIndexType(), row));
  }
  return features;
}

Value WeightOrder::getViewPlace(Emitter &e, const Piece &piece, Index number) {
  return loadNumber(e, spans,
                    {piece.part, piece.chunk, number, Index::constant(0)});
}

SmallVector<Index> WeightOrder::getLanes(Emitter &e, Index tile) {
  SmallVector<Index> lanes;
  int64_t tokens = getTile(e.target);
  for (int64_t first = 0; first != tokens; first += e.width) {
    Index lane = e.multiplyAdd(tile, tokens, Index::constant(first));
    lane.lanes = e.width > 1;
    lane.align = e.width;
    lanes.push_back(lane);
  }
  return lanes;
}

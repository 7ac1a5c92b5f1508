// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.sddmm of single weights, in an order of their own.

#include "SingleSpMM.h"
#include "WeightOrder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Weights of a line whose lanes are summed up together.
static constexpr int64_t togetherWeights = 4;
/// How many lines later the rows are needed that are prefetched: lines of a
/// piece are anywhere.
static constexpr int64_t linesAhead = 4;

namespace {
/// A work item is a part of the lines, for one tile of tokens after the other,
/// and in each chunk by chunk of the other features: the rows of a chunk stay
/// in the first-level cache, and the row of a line in registers while its
/// weights of the chunk are taken.
class SampleEmitter {
public:
  SampleEmitter(Emitter &e, SDDMMOp op, Value output, const PatternView &view,
                WeightOrder &order)
      : e(e), op(op), output(output), view(view), order(order),
        activations(op.getA().getType().getShape(), op.getFeatureDim()) {
    bool alongRows = *getWalkedView(op, e.target) == View::Rows;
    held = alongRows ? op.getA() : op.getB();
    chunked = alongRows ? op.getB() : op.getA();
  }
  void emit();

private:
  using Piece = WeightOrder::Piece;

  void emitPiece(const Piece &piece);
  void prefetch(Value tensor, Index feature, int64_t ahead);
  void emitLine(const Piece &piece, Index number, Value place, Value count);
  void addWeights(const Piece &piece, ArrayRef<Value> row, Index place,
                  Index sum, int64_t count);
  SmallVector<Index> getPlace(Index feature, Index lane) const {
    return activations.at(leading, feature, lane);
  }

  Emitter &e;
  SDDMMOp op;
  Value output, held, chunked;
  PatternView view;
  WeightOrder &order;
  Activations activations;
  /// The tile: its leading indices and its vectors.
  SmallVector<Index> leading, lanes;
  /// The sums of a part in the order of the view, and where it begins there.
  Value sums, start;
};
} // namespace

/// Adds to the sums from `first` on what the tokens of the tile make of `count`
/// weights, from `place` on.
void SampleEmitter::addWeights(const Piece &piece, ArrayRef<Value> row,
                               Index place, Index first, int64_t count) {
  SmallVector<Value> products;
  for (Index feature : order.getFeatures(e, piece, place, count)) {
    Value sum;
    for (auto [lane, factor] : llvm::zip_equal(lanes, row)) {
      Value x = e.read(chunked, getPlace(feature, lane));
      sum = sum ? multiplyAdd(e, factor, x, sum)
                : arith::MulFOp::create(e.b, e.loc, factor, x);
    }
    products.push_back(sum);
  }
  first.lanes = count > 1;
  llvm::SaveAndRestore width(e.width, count);
  Value total = count > 1 ? e.sumLanes(products) : e.sumLanes(products.front());
  Value before = e.load(sums, first);
  e.store(arith::AddFOp::create(e.b, e.loc, before, total), sums, first);
}

/// The row of `feature` in the tile that comes `ahead` tokens later.
void SampleEmitter::prefetch(Value tensor, Index feature, int64_t ahead) {
  int64_t inLine = std::max<int64_t>(1, lineBytes / (4 * e.width));
  for (size_t vector = 0; vector < lanes.size(); vector += inLine)
    e.prefetch(tensor, getPlace(feature, lanes[vector].scalar().plus(ahead)),
               1);
}

/// Line `number` of `piece`, whose `count` weights begin at `place`.
void SampleEmitter::emitLine(const Piece &piece, Index number, Value place,
                             Value count) {
  Index feature = order.getLine(e, piece, number);
  Value next =
      arith::MinUIOp::create(e.b, e.loc, e.materialize(number.plus(linesAhead)),
                             e.constant(order.partLines - 1));
  Index following = order.getLine(e, piece, Index::of(next));
  prefetch(held, following, 0);
  // Rows of the chunk that the next tile needs: each line has its share.
  int64_t rows = llvm::divideCeil(order.chunk, order.partLines);
  for (int64_t i = 0; i != rows; ++i) {
    Value row = arith::MinUIOp::create(
        e.b, e.loc,
        e.materialize(
            e.multiplyAdd(piece.chunk, order.chunk,
                          e.multiplyAdd(number, rows, Index::constant(i)))),
        e.constant(order.features - 1));
    prefetch(chunked, Index::of(row), order.getTile(e.target));
  }
  SmallVector<Value> row;
  for (Index lane : lanes)
    row.push_back(e.read(held, getPlace(feature, lane)));
  Value rest =
      arith::RemUIOp::create(e.b, e.loc, count, e.constant(togetherWeights));
  Value whole = arith::SubIOp::create(e.b, e.loc, count, rest);
  Value sum = arith::SubIOp::create(
      e.b, e.loc, order.getViewPlace(e, piece, number), start);
  auto addFrom = [&](Value low, Value high, int64_t size) {
    e.loop(low, high, size, {}, [&](Value step, ValueRange) {
      auto behind = [&](Value base) {
        return Index::of(arith::AddIOp::create(e.b, e.loc, base, step));
      };
      addWeights(piece, row, behind(place), behind(sum), size);
      return SmallVector<Value>();
    });
  };
  addFrom(e.constant(0), whole, togetherWeights);
  addFrom(whole, count, 1);
}

void SampleEmitter::emitPiece(const Piece &piece) {
  order.forRuns(
      e, piece, 1, [&](Value count, Value from, Value to, Value place) {
        e.loop(from, to, 1, place, [&](Value number, ValueRange carried) {
          emitLine(piece, Index::of(number), carried.front(), count);
          return SmallVector<Value>{
              arith::AddIOp::create(e.b, e.loc, carried.front(), count)};
        });
      });
}

void SampleEmitter::emit() {
  e.forall(order.parts, [&](ArrayRef<Index> item) {
    Index part = item.front();
    Type f32 = e.b.getF32Type();
    sums = e.allocate({order.getPartSlots()}, f32);
    Index first = e.multiplyAdd(part, order.partLines, Index::constant(0));
    start = loadIndex(e, view.ptr, first);
    Value end = loadIndex(e, view.ptr, first.plus(order.partLines));
    Value count = arith::SubIOp::create(e.b, e.loc, end, start);
    e.loop(e.constant(0), count, 1, {}, [&](Value at, ValueRange) {
      e.store(getZeros(e, f32, 1).front(), sums, Index::of(at));
      return SmallVector<Value>();
    });
    SmallVector<int64_t> tiles(activations.leading);
    tiles.push_back(activations.tokens / order.getTile(e.target));
    e.nest(tiles, {}, [&](ArrayRef<Index> tile, ValueRange) {
      llvm::SaveAndRestore width(e.width, e.target.lanes);
      leading.assign(tile.begin(), tile.end() - 1);
      lanes = order.getLanes(e, tile.back());
      e.loop(order.chunks, {}, [&](Index chunk, ValueRange) {
        emitPiece({part, chunk});
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    });
    e.loop(order.partLines, {}, [&](Index number, ValueRange) {
      Index line = e.multiplyAdd(part, order.partLines, number);
      Value low = loadIndex(e, view.ptr, line);
      Value high = loadIndex(e, view.ptr, line.plus(1));
      e.loop(low, high, 1, {}, [&](Value at, ValueRange) {
        Index sum = Index::of(arith::SubIOp::create(e.b, e.loc, at, start));
        Index zero = Index::constant(0);
        e.store(
            e.load(sums, sum), output,
            {Index::of(loadIndex(e, view.slot, Index::of(at))), zero, zero});
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    });
  });
}

void cpu::emitOrderedSDDMM(Emitter &e, SDDMMOp op, Value output,
                           const PatternViews &patterns, ValueRange scratch) {
  WeightOrder order = *WeightOrder::match(op, e.target);
  const PatternView &view =
      patterns.at({op.getPattern(), *getWalkedView(op, e.target)});
  order.emit(e, view, Value(), scratch);
  SampleEmitter(e, op, output, view, order).emit();
}

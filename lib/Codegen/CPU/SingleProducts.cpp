// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.spmm of single weights, in an order of their own.

#include "SingleProducts.h"
#include "WeightOrder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;

/// Lines of a run that are taken at once, and their weights in a step.
static constexpr int64_t togetherLines = 3, togetherWeights = 4;

namespace {
/// A work item is a tile of tokens, a few vectors side by side, and all lines:
/// part by part, and in each chunk by chunk of what is summed up. The sums of
/// some lines are in registers while their weights of the chunk are taken.
class SingleEmitter {
public:
  SingleEmitter(Emitter &e, SpMMOp op, Value output, WeightOrder &order,
                Epilogue epilogue)
      : e(e), op(op), output(output), order(order), epilogue(epilogue),
        activations(op.getX().getType().getShape(), op.getFeatureDim()) {}
  void emit();

private:
  using Piece = WeightOrder::Piece;

  void emitPiece(const Piece &piece, bool isFirst);
  void emitLines(const Piece &piece, ArrayRef<Index> numbers,
                 ArrayRef<Value> places, Value count, bool isFirst);
  SmallVector<Value> addWeights(const Piece &piece, ArrayRef<Index> places,
                                ValueRange sums);
  void emitEpilogue(Index part);
  SmallVector<Index> getPlace(Index line, Index lane) const {
    return activations.at(leading, line, lane);
  }

  Emitter &e;
  SpMMOp op;
  Value output;
  WeightOrder &order;
  Epilogue epilogue;
  Activations activations;
  /// The tile: its leading indices, its vectors and the number of the first.
  SmallVector<Index> leading, lanes;
  Index number;
};
} // namespace

/// `sums`, of each line its vectors, with a weight of each line, at `places`.
SmallVector<Value> SingleEmitter::addWeights(const Piece &piece,
                                             ArrayRef<Index> places,
                                             ValueRange sums) {
  SmallVector<Value> next;
  for (auto [line, place] : llvm::enumerate(places)) {
    Index feature = order.getFeature(e, piece, place);
    Value weight = order.getWeight(e, place);
    for (auto [vector, lane] : llvm::enumerate(lanes))
      next.push_back(multiplyAdd(e, weight,
                                 e.read(op.getX(), getPlace(feature, lane)),
                                 sums[line * lanes.size() + vector]));
  }
  return next;
}

/// Lines `numbers` of `piece`, of `count` weights each from `places` on.
void SingleEmitter::emitLines(const Piece &piece, ArrayRef<Index> numbers,
                              ArrayRef<Value> places, Value count,
                              bool isFirst) {
  SmallVector<Index> features;
  SmallVector<Value> sums;
  for (Index number : numbers) {
    Index feature = order.getLine(e, piece, number);
    features.push_back(feature);
    // The lines that follow are anywhere.
    Value next = arith::MinUIOp::create(
        e.b, e.loc, e.materialize(number.plus(numbers.size())),
        e.constant(order.partLines - 1));
    Index following = order.getLine(e, piece, Index::of(next));
    for (Index lane : lanes) {
      e.prefetchMemory(output, getPlace(following, lane.scalar()), e.width,
                       /*isWrite=*/true);
      if (!isFirst)
        sums.push_back(e.load(output, getPlace(feature, lane)));
      else if (op.getBias())
        sums.push_back(e.broadcast(e.read(op.getBias(), feature)));
      else
        llvm::append_range(sums, getZeros(e, e.b.getF32Type(), 1));
    }
  }
  auto addFrom = [&](Value step, int64_t size, ValueRange carried) {
    SmallVector<Value> next(carried);
    for (int64_t i = 0; i != size; ++i) {
      SmallVector<Index> at = llvm::map_to_vector(places, [&](Value place) {
        Value first = arith::AddIOp::create(e.b, e.loc, place, step);
        return Index::of(first).plus(i);
      });
      next = addWeights(piece, at, next);
    }
    return next;
  };
  Value rest =
      arith::RemUIOp::create(e.b, e.loc, count, e.constant(togetherWeights));
  Value whole = arith::SubIOp::create(e.b, e.loc, count, rest);
  sums = e.loop(e.constant(0), whole, togetherWeights, sums,
                [&](Value step, ValueRange carried) {
                  return addFrom(step, togetherWeights, carried);
                });
  sums = e.loop(whole, count, 1, sums, [&](Value step, ValueRange carried) {
    return addFrom(step, 1, carried);
  });
  for (auto [line, feature] : llvm::enumerate(features))
    for (auto [vector, lane] : llvm::enumerate(lanes))
      e.store(sums[line * lanes.size() + vector], output,
              getPlace(feature, lane));
}

/// The lines of `piece`, some at once. The first chunk writes all, the others
/// those that have weights there.
void SingleEmitter::emitPiece(const Piece &piece, bool isFirst) {
  order.forRuns(e, piece, isFirst ? 0 : 1,
                [&](Value count, Value from, Value to, Value place) {
                  auto forLines = [&](Value low, Value high, int64_t size) {
                    e.loop(low, high, size, {}, [&](Value first, ValueRange) {
                      SmallVector<Index> numbers;
                      SmallVector<Value> places;
                      for (int64_t i = 0; i != size; ++i) {
                        numbers.push_back(Index::of(first).plus(i));
                        Value before = arith::SubIOp::create(
                            e.b, e.loc, e.materialize(numbers.back()), from);
                        Value weights =
                            arith::MulIOp::create(e.b, e.loc, before, count);
                        places.push_back(
                            arith::AddIOp::create(e.b, e.loc, place, weights));
                      }
                      emitLines(piece, numbers, places, count, isFirst);
                      return SmallVector<Value>();
                    });
                  };
                  Value length = arith::SubIOp::create(e.b, e.loc, to, from);
                  Value rest = arith::RemUIOp::create(
                      e.b, e.loc, length, e.constant(togetherLines));
                  Value whole = arith::SubIOp::create(e.b, e.loc, to, rest);
                  forLines(from, whole, togetherLines);
                  forLines(whole, to, 1);
                });
}

void SingleEmitter::emitEpilogue(Index part) {
  e.loop(order.partLines, {}, [&](Index line, ValueRange) {
    Index feature = e.multiplyAdd(part, order.partLines, line);
    for (auto [vector, lane] : llvm::enumerate(lanes))
      epilogue(getPlace(feature, lane), number.plus(vector));
    return SmallVector<Value>();
  });
}

void SingleEmitter::emit() {
  int64_t panel = e.target.panel();
  int64_t tile = order.panels * panel;
  SmallVector<int64_t> extents(activations.leading);
  extents.push_back(activations.tokens / tile);
  e.forall(extents, [&](ArrayRef<Index> at) {
    llvm::SaveAndRestore width(e.width, panel);
    leading.assign(at.begin(), at.end() - 1);
    number = e.multiplyAdd(at.back(), order.panels, Index::constant(0));
    lanes.clear();
    for (int64_t vector = 0; vector != order.panels; ++vector) {
      Index lane =
          e.multiplyAdd(at.back(), tile, Index::constant(vector * panel));
      lane.lanes = panel > 1;
      lane.align = panel;
      lanes.push_back(lane);
    }
    e.loop(order.parts, {}, [&](Index part, ValueRange) {
      emitPiece({part, Index::constant(0)}, /*isFirst=*/true);
      if (order.chunks > 1)
        e.loop(e.constant(1), e.constant(order.chunks), 1, {},
               [&](Value chunk, ValueRange) {
                 emitPiece({part, Index::of(chunk)}, /*isFirst=*/false);
                 return SmallVector<Value>();
               });
      if (epilogue)
        emitEpilogue(part);
      return SmallVector<Value>();
    });
  });
}

SmallVector<MemRefType> bsr::getOrderMemory(Operation *product,
                                            CPUTarget target) {
  auto op = dyn_cast<SpMMOp>(product);
  std::optional<WeightOrder> order;
  if (op)
    order = WeightOrder::match(op, target);
  return order ? order->getScratch() : SmallVector<MemRefType>();
}

void bsr::emitOrderedSpMM(Emitter &e, SpMMOp op, Value output,
                          const PatternViews &patterns, ValueRange scratch,
                          Epilogue epilogue) {
  WeightOrder order = *WeightOrder::match(op, e.target);
  View lines = getView(!op.getTranspose());
  order.emit(e, patterns.at({op.getPattern(), lines}), op.getValues(), scratch);
  SingleEmitter(e, op, output, order, epilogue).emit();
}

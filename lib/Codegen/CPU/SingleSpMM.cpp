// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.spmm of single weights, in an order of their own.

#include "SingleSpMM.h"
#include "LineReader.h"
#include "WeightOrder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

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
        activations(op.getX().getType().getShape(), op.getFeatureDim()),
        windows(e, op.getX()) {}
  void emit();

private:
  using Piece = WeightOrder::Piece;

  void emitPiece(const Piece &piece, bool isFirst);
  void emitLines(const Piece &piece, ArrayRef<Index> numbers,
                 ArrayRef<Value> places, Value count, bool isFirst);
  void addWeights(const Piece &piece, ArrayRef<Value> places, Value step,
                  int64_t count, MutableArrayRef<Value> sums);
  void emitEpilogue(Index part);
  void prefetchChunk(const Piece &piece, Index number, int64_t count);
  SmallVector<Index> getPlace(Index line, Index lane) const {
    return activations.at(leading, line, lane);
  }

  Emitter &e;
  SpMMOp op;
  Value output;
  WeightOrder &order;
  Epilogue epilogue;
  Activations activations;
  LineReader windows;
  /// The tile: its leading indices, its vectors and the number of the first.
  SmallVector<Index> leading, lanes;
  Index number;
};
} // namespace

/// Adds to `sums`, of each line its vectors, `count` weights of each line, from
/// `step` behind `places` on.
void SingleEmitter::addWeights(const Piece &piece, ArrayRef<Value> places,
                               Value step, int64_t count,
                               MutableArrayRef<Value> sums) {
  SmallVector<Index> firsts;
  SmallVector<SmallVector<Index>> features;
  for (Value place : places) {
    firsts.push_back(Index::of(arith::AddIOp::create(e.b, e.loc, place, step)));
    features.push_back(order.getFeatures(e, piece, firsts.back(), count));
  }
  for (int64_t i = 0; i != count; ++i)
    for (auto [line, first] : llvm::enumerate(firsts)) {
      Value weight = e.load(order.weights, first.plus(i));
      for (auto [vector, lane] : llvm::enumerate(lanes)) {
        Value &sum = sums[line * lanes.size() + vector];
        Index feature = features[line][i];
        Value x = windows.hasTable()
                      ? windows.read(feature, lane)
                      : e.read(op.getX(), getPlace(feature, lane));
        sum = multiplyAdd(e, weight, x, sum);
      }
    }
}

/// Rows that the next chunk reads: `count` lines of `piece` from `number` on
/// have a share of them. Nobody else fetches them: lines read them in any
/// order.
void SingleEmitter::prefetchChunk(const Piece &piece, Index number,
                                  int64_t count) {
  Value share = arith::MulIOp::create(e.b, e.loc, e.materialize(number),
                                      e.constant(order.chunk));
  share =
      arith::DivUIOp::create(e.b, e.loc, share, e.constant(order.partLines));
  Index first = e.multiplyAdd(piece.chunk, order.chunk, Index::of(share));
  int64_t rows = llvm::divideCeil(count * order.chunk, order.partLines);
  for (int64_t i = 0; i != rows; ++i) {
    Value row = arith::MinUIOp::create(
        e.b, e.loc, e.materialize(first.plus(order.chunk + i)),
        e.constant(order.features - 1));
    for (Index lane : lanes)
      e.prefetch(op.getX(), getPlace(Index::of(row), lane.scalar()), e.width);
  }
}

/// Lines `numbers` of `piece`, of `count` weights each from `places` on.
void SingleEmitter::emitLines(const Piece &piece, ArrayRef<Index> numbers,
                              ArrayRef<Value> places, Value count,
                              bool isFirst) {
  SmallVector<Index> features;
  SmallVector<Value> sums;
  if (order.chunks > 1)
    prefetchChunk(piece, numbers.front(), numbers.size());
  // The lines that follow are anywhere.
  int64_t together = numbers.size();
  Index next = Index::of(arith::MinUIOp::create(
      e.b, e.loc, e.materialize(numbers.front().plus(together)),
      e.constant(std::max<int64_t>(order.partLines - together, 0))));
  for (auto [i, number] : llvm::enumerate(numbers)) {
    Index feature = order.getLine(e, piece, number);
    features.push_back(feature);
    Index following = order.getLine(e, piece, next.plus(i));
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
    addWeights(piece, places, step, size, next);
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
  SmallVector<int64_t> extents(activations.leading);
  extents.push_back(activations.tokens / order.getTile(e.target));
  e.forall(extents, [&](ArrayRef<Index> at) {
    llvm::SaveAndRestore width(e.width, e.target.panel());
    leading.assign(at.begin(), at.end() - 1);
    number = e.multiplyAdd(at.back(), order.panels, Index::constant(0));
    lanes = order.getLanes(e, at.back());
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

SmallVector<MemRefType> cpu::getOrderMemory(Operation *product,
                                            CPUTarget target) {
  if (std::optional<WeightOrder> order = WeightOrder::match(product, target))
    return order->getScratch();
  SmallVector<MemRefType> types;
  if (auto op = dyn_cast<SpMMOp>(product))
    if (MemRefType type = getOrderedValues(op, target))
      types.push_back(type);
  return types;
}

void cpu::emitOrderedSpMM(Emitter &e, SpMMOp op, Value output,
                          const PatternViews &patterns, ValueRange scratch,
                          Epilogue epilogue) {
  std::optional<WeightOrder> order = WeightOrder::match(op, e.target);
  if (!order)
    return emitSpMM(e, op, output, patterns, epilogue, scratch.front());
  View lines = *getWalkedView(op, e.target);
  order->emit(e, patterns.at({op.getPattern(), lines}), op.getValues(),
              scratch);
  SingleEmitter(e, op, output, *order, epilogue).emit();
}

void cpu::emitOrdered(Emitter &e, Operation *product, Value output,
                      const PatternViews &patterns, ValueRange scratch) {
  if (auto op = dyn_cast<SpMMOp>(product))
    emitOrderedSpMM(e, op, output, patterns, scratch);
  else
    emitOrderedSDDMM(e, cast<SDDMMOp>(product), output, patterns, scratch);
}

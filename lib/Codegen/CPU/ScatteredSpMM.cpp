// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.spmm of blocks that make one feature each of several.

#include "SparseKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// How many blocks later the rows of sums are needed that are prefetched.
static constexpr int64_t ahead = 16;
/// Rows of blocks that are taken in a step, at most.
static constexpr int64_t maxRows = 16;

namespace {
/// A work item is a panel of tokens and all blocks. The blocks of a line read
/// the same rows of features, which stay in the first-level cache, and each
/// adds to a row of sums in memory: what is gathered else, a row for each
/// number of a block, is many times as much. Some blocks of a line are taken at
/// once, with their sums in registers: a row is loaded once for all of them.
class ScatterEmitter {
public:
  ScatterEmitter(Emitter &e, SpMMOp op, Value output,
                 const PatternViews &patterns, Epilogue epilogue, Value ordered)
      : e(e), op(op), output(output), ordered(ordered),
        pattern(op.getPattern().getType()), walked(getView(op.getTranspose())),
        view(patterns.at({op.getPattern(), walked})), epilogue(epilogue),
        activations(op.getX().getType().getShape(), op.getFeatureDim()),
        outputs(pattern.getNumLines(getOther(walked))),
        block(pattern.getBlockExtent(walked)),
        together(e.target.tileVectors() > 2 ? 3 : 4),
        prefetchesSums(4 * outputs * e.target.panel() > e.target.firstCache) {}
  void emit();

private:
  void forOutputs(llvm::function_ref<void(Index)> body);
  void emitLine(Index line);
  void emitBlocks(Index line, Value first, int64_t count);
  SmallVector<Index> getPlace(Index feature) const {
    return activations.at(leading, feature, lane);
  }

  Emitter &e;
  SpMMOp op;
  Value output;
  /// The values in the order of the view, [slots, rows, columns].
  Value ordered;
  PatternType pattern;
  View walked;
  PatternView view;
  Epilogue epilogue;
  Activations activations;
  /// Features that are made, and those of a block that are read.
  int64_t outputs, block;
  /// Blocks of a line that are taken at once, with sums enough to hide how long
  /// a multiply-add takes. Of four vectors each, three blocks: stores of more
  /// sums keep the next blocks waiting, as measured on Emerald Rapids.
  int64_t together;
  /// The sums of a panel are more than the first-level cache keeps.
  bool prefetchesSums;
  /// The panel: its leading indices and its lanes.
  SmallVector<Index> leading;
  Index lane;
};
} // namespace

void ScatterEmitter::forOutputs(llvm::function_ref<void(Index)> body) {
  e.loop(outputs, {}, [&](Index feature, ValueRange) {
    body(feature);
    return SmallVector<Value>();
  });
}

/// Adds `count` blocks of `line` from number `first` on: each makes a feature
/// of its own.
void ScatterEmitter::emitBlocks(Index line, Value first, int64_t count) {
  SmallVector<SmallVector<Index>> places;
  SmallVector<Value> sums;
  // The last of the blocks that are prefetched is one of the pattern.
  Index last;
  if (prefetchesSums)
    last = getNextBlock(e, first, pattern, ahead + count - 1);
  for (int64_t i : llvm::seq(count)) {
    auto getSums = [&](Index number) {
      return getPlace(Index::of(loadIndex(e, view.idx, number)));
    };
    if (prefetchesSums) {
      SmallVector<Index> place = getSums(last.plus(i + 1 - count));
      place.back() = lane.scalar();
      e.prefetchMemory(output, place, e.width, /*isWrite=*/true);
    }
    places.push_back(getSums(Index::of(first).plus(i)));
    sums.push_back(e.load(output, places.back()));
  }
  int64_t unroll = getDivisor(block, maxRows);
  sums = e.loop(block / unroll, sums, [&](Index step, ValueRange carried) {
    SmallVector<Value> next(carried);
    for (int64_t i : llvm::seq(unroll)) {
      Index feature = e.multiplyAdd(step, unroll, Index::constant(i));
      Value row =
          e.read(op.getX(), getPlace(e.multiplyAdd(line, block, feature)));
      for (auto [number, sum] : llvm::enumerate(next)) {
        Index entry[] = {feature, Index::constant(0)};
        if (walked == View::Columns)
          std::swap(entry[0], entry[1]);
        Value weight = e.load(
            ordered, {Index::of(first).plus(number), entry[0], entry[1]});
        sum = multiplyAdd(e, weight, row, sum);
      }
    }
    return next;
  });
  for (auto [sum, place] : llvm::zip_equal(sums, places))
    e.store(sum, output, place);
}

/// All blocks of a line, some at once.
void ScatterEmitter::emitLine(Index line) {
  Value low = loadIndex(e, view.ptr, line);
  Value high = loadIndex(e, view.ptr, line.plus(1));
  Value count = arith::SubIOp::create(e.b, e.loc, high, low);
  Value rest = arith::RemUIOp::create(e.b, e.loc, count, e.constant(together));
  Value whole = arith::SubIOp::create(e.b, e.loc, high, rest);
  auto forBlocks = [&](Value from, Value to, int64_t size) {
    e.loop(from, to, size, {}, [&](Value first, ValueRange) {
      emitBlocks(line, first, size);
      return SmallVector<Value>();
    });
  };
  forBlocks(low, whole, together);
  forBlocks(whole, high, 1);
}

void ScatterEmitter::emit() {
  emitOrderedValues(e, op, view, ordered);
  int64_t panel = e.target.panel();
  SmallVector<int64_t> extents(activations.leading);
  extents.push_back(activations.tokens / panel);
  e.forall(extents, [&](ArrayRef<Index> at) {
    llvm::SaveAndRestore width(e.width, panel);
    leading.assign(at.begin(), at.end() - 1);
    lane = e.multiplyAdd(at.back(), panel, Index::constant(0));
    lane.lanes = panel > 1;
    lane.align = panel;
    forOutputs([&](Index feature) {
      Value start =
          op.getBias()
              ? e.read(op.getBias(), feature)
              : getZeros(e, op.getY().getType().getElementType(), 1).front();
      e.store(e.broadcast(start), output, getPlace(feature));
    });
    e.loop(pattern.getNumLines(walked), {}, [&](Index line, ValueRange) {
      emitLine(line);
      return SmallVector<Value>();
    });
    if (epilogue)
      forOutputs(
          [&](Index feature) { epilogue(getPlace(feature), at.back()); });
  });
}

void cpu::emitSpMM(Emitter &e, SpMMOp op, Value output,
                   const PatternViews &patterns, Epilogue epilogue,
                   Value ordered, ArrayRef<Stream> streams) {
  ProductSchedule schedule = getSchedule(op, e.target);
  if (schedule.walk == Walk::Scatter)
    ScatterEmitter(e, op, output, patterns, epilogue, ordered).emit();
  else
    emitGatheredSpMM(e, {op, output, patterns, epilogue, ordered, streams},
                     schedule);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.spmm of blocks that make one feature each of several.

#include "SparseKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Features of a block that are read, at least: a row of sums is read and
/// written for as many. And panels of tokens, which are work items.
static constexpr int64_t minRows = 4, minPanels = 16;
/// How many blocks later the rows of sums and the values are needed that are
/// prefetched: values lie anywhere in the third-level cache.
static constexpr int64_t ahead = 16;
/// Blocks of a line that are taken at once: sums that hide how long a
/// multiply-add takes, and no more values than general registers point to. And
/// rows of a step of these, at most.
static constexpr int64_t together = 4, maxRows = 4;

bool cpu::isScattered(SpMMOp op, CPUTarget target) {
  PatternType pattern = op.getPattern().getType();
  View read = getView(op.getTranspose());
  Activations activations(op.getX().getType().getShape(), op.getFeatureDim());
  Type type = op.getY().getType().getElementType();
  auto hasType = [&](Value tensor) {
    return getElementTypeOrSelf(tensor.getType()) == type;
  };
  int64_t panels = llvm::product_of(activations.leading) * activations.tokens /
                   target.panel();
  return pattern.getBlockExtent(getOther(read)) == 1 &&
         pattern.getBlockExtent(read) >= minRows && !op.getNumBatchDims() &&
         activations.hasLanes && (type.isF32() || type.isF64()) &&
         hasType(op.getValues()) && hasType(op.getX()) &&
         activations.tokens % target.panel() == 0 && panels >= minPanels;
}

namespace {
/// A work item is a panel of tokens and all blocks. The blocks of a line read
/// the same rows of features, which stay in the first-level cache, and each
/// adds to a row of sums in memory: what is gathered else, a row for each
/// number of a block, is many times as much. Some blocks of a line are taken at
/// once, with their sums in registers: a row is loaded once for all of them.
class ScatterEmitter {
public:
  ScatterEmitter(Emitter &e, SpMMOp op, Value output,
                 const PatternViews &patterns, Epilogue epilogue)
      : e(e), op(op), output(output), pattern(op.getPattern().getType()),
        walked(getView(op.getTranspose())),
        view(patterns.at({op.getPattern(), walked})), epilogue(epilogue),
        activations(op.getX().getType().getShape(), op.getFeatureDim()),
        outputs(pattern.getNumLines(getOther(walked))),
        block(pattern.getBlockExtent(walked)),
        prefetchesSums(4 * outputs * e.target.panel() > e.target.rowBytes()) {}
  void emit();

private:
  void forOutputs(llvm::function_ref<void(Index)> body);
  void emitLine(Index line);
  void emitBlocks(Index line, Value first, Value end, int64_t count);
  SmallVector<Index> getPlace(Index feature) const {
    return activations.at(leading, feature, lane);
  }

  Emitter &e;
  SpMMOp op;
  Value output;
  PatternType pattern;
  View walked;
  PatternView view;
  Epilogue epilogue;
  Activations activations;
  /// Features that are made, and those of a block that are read.
  int64_t outputs, block;
  /// The sums of a panel are more than the second-level cache keeps.
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

/// Adds `count` blocks of `line` from number `first` on, of those before `end`:
/// each makes a feature of its own.
void ScatterEmitter::emitBlocks(Index line, Value first, Value end,
                                int64_t count) {
  auto load = [&](Value array, Index at) {
    return Index::of(loadIndex(e, array, at));
  };
  SmallVector<Index> slots;
  SmallVector<SmallVector<Index>> places;
  SmallVector<Value> sums;
  // The last of the blocks that are prefetched is one of the pattern.
  Index last = getNextBlock(e, first, pattern, ahead + count - 1);
  for (int64_t i : llvm::seq(count)) {
    Index number = Index::of(first).plus(i), next = last.plus(i + 1 - count);
    Index zero = Index::constant(0);
    e.prefetch(op.getValues(), {load(view.slot, next), zero, zero}, block);
    if (prefetchesSums) {
      SmallVector<Index> place = getPlace(load(view.idx, next));
      place.back() = lane.scalar();
      e.prefetchMemory(output, place, e.width, /*isWrite=*/true);
    }
    slots.push_back(load(view.slot, number));
    places.push_back(getPlace(load(view.idx, number)));
    sums.push_back(e.load(output, places.back()));
  }
  // There are as many blocks left as are taken. LLVM does not know it, and
  // leaves the rows a loop: of all at once, it would compute one sum after the
  // other, and keep rows and values on the stack.
  int64_t unroll = getDivisor(block, maxRows);
  Value steps = e.constant(block / unroll);
  if (block / unroll <= count)
    steps = arith::MinUIOp::create(
        e.b, e.loc, steps, arith::SubIOp::create(e.b, e.loc, end, first));
  sums = e.loop(
      e.constant(0), steps, 1, sums, [&](Value step, ValueRange carried) {
        SmallVector<Value> next(carried);
        for (int64_t i : llvm::seq(unroll)) {
          Index feature =
              e.multiplyAdd(Index::of(step), unroll, Index::constant(i));
          Value row =
              e.read(op.getX(), getPlace(e.multiplyAdd(line, block, feature)));
          for (auto [slot, sum] : llvm::zip_equal(slots, next)) {
            Index entry[] = {feature, Index::constant(0)};
            if (walked == View::Columns)
              std::swap(entry[0], entry[1]);
            Value weight = e.read(op.getValues(), {slot, entry[0], entry[1]});
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
      emitBlocks(line, first, to, size);
      return SmallVector<Value>();
    });
  };
  forBlocks(low, whole, together);
  forBlocks(whole, high, 1);
}

void ScatterEmitter::emit() {
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
                   const PatternViews &patterns, Epilogue epilogue) {
  if (isScattered(op, e.target))
    ScatterEmitter(e, op, output, patterns, epilogue).emit();
  else
    emitGatheredSpMM(e, op, output, patterns, epilogue);
}

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
/// A work item is a panel of tokens and all blocks. Rows of features that a
/// line of blocks reads stay in registers, where other kernels have sums, and
/// each block adds to a row of sums in memory: what is gathered else, a row for
/// each number of a block, is many times as much.
class ScatterEmitter {
public:
  ScatterEmitter(Emitter &e, SpMMOp op, Value output,
                 const PatternViews &patterns, Epilogue epilogue)
      : e(e), op(op), output(output), pattern(op.getPattern().getType()),
        walked(getView(op.getTranspose())),
        view(patterns.at({op.getPattern(), walked})), epilogue(epilogue),
        activations(op.getX().getType().getShape(), op.getFeatureDim()),
        outputs(pattern.getNumLines(getOther(walked))),
        block(pattern.getBlockExtent(walked)) {}
  void emit();

private:
  void forOutputs(llvm::function_ref<void(Index)> body);
  void emitLine(Index line);
  void emitBlock(Value number, ArrayRef<Value> rows, Index first,
                 bool prefetches);
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

/// Adds block `number`, of which `rows` from feature `first` on are at hand.
void ScatterEmitter::emitBlock(Value number, ArrayRef<Value> rows, Index first,
                               bool prefetches) {
  auto load = [&](Value array, Index at) {
    return Index::of(loadIndex(e, array, at));
  };
  if (prefetches) {
    Index next = getNextBlock(e, number, pattern, ahead);
    Index zero = Index::constant(0);
    e.prefetch(op.getValues(), {load(view.slot, next), zero, zero}, block);
    SmallVector<Index> place = getPlace(load(view.idx, next));
    place.back() = lane.scalar();
    e.prefetchMemory(output, place, e.width, /*isWrite=*/true);
  }
  Index slot = load(view.slot, Index::of(number));
  SmallVector<Index> place = getPlace(load(view.idx, Index::of(number)));
  Value sum = e.load(output, place);
  for (auto [number, row] : llvm::enumerate(rows)) {
    Index entry[] = {first.plus(number), Index::constant(0)};
    if (walked == View::Columns)
      std::swap(entry[0], entry[1]);
    sum = multiplyAdd(e, e.read(op.getValues(), {slot, entry[0], entry[1]}),
                      row, sum);
  }
  e.store(sum, output, place);
}

/// All blocks of a line, for a register tile of the features that they read
/// after the other: the first one prefetches.
void ScatterEmitter::emitLine(Index line) {
  Value low = loadIndex(e, view.ptr, line);
  Value high = loadIndex(e, view.ptr, line.plus(1));
  for (const Tiles &tiles : tileEvenly(block, CPUTarget::tileRows))
    for (int64_t tile : llvm::seq(tiles.count)) {
      Index first = Index::constant(tiles.base + tile * tiles.size);
      SmallVector<Value> rows;
      for (int64_t row : llvm::seq(tiles.size))
        rows.push_back(e.read(
            op.getX(), getPlace(e.multiplyAdd(line, block, first.plus(row)))));
      e.loop(low, high, 1, {}, [&](Value number, ValueRange) {
        emitBlock(number, rows, first, tiles.base + tile == 0);
        return SmallVector<Value>();
      });
    }
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

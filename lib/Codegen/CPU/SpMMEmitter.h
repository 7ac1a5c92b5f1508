// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What emits a bsr.spmm that gathers.

#ifndef BSR_LIB_CODEGEN_CPU_SPMMEMITTER_H
#define BSR_LIB_CODEGEN_CPU_SPMMEMITTER_H

#include "GatherNest.h"
#include "LineReader.h"
#include "PairProducts.h"
#include "SplitLanes.h"

namespace mlir::bsr::cpu {

/// Gathers: a work item is a row of register tiles of lanes of one token slice,
/// and lines of blocks of the output. For each line it walks the stored blocks,
/// with a register tile of `rows` features x `panels` panels of accumulators.
/// It takes a k-block for all tiles of the line; between k-blocks, partial sums
/// are kept in the output.
class SpMMEmitter : GatherNest {
public:
  SpMMEmitter(Emitter &e, const GatheredSpMM &kernel,
              const ProductSchedule &given)
      : GatherNest(kernel.op, e.target, given,
                   !!e.getBuffer(SpMMOp(kernel.op).getValues()),
                   !!kernel.ordered),
        e(e), op(kernel.op), output(kernel.output),
        view(kernel.patterns.at({op.getPattern(), walked})),
        epilogue(kernel.epilogue),
        together(epilogue.square
                     ? std::max<int64_t>(1, Epilogue::squareFeatures / outBlock)
                     : 1),
        activations(op.getX().getType().getShape(), op.getFeatureDim()),
        windows(e, op.getX()), ordered(kernel.ordered),
        streams(tiles.size() > 1 && !rereads && e.target.lanes >= 16
                    ? kernel.streams
                    : ArrayRef<Stream>()) {}
  /// Full register tiles of lanes and the rest, or just that.
  void emit(bool isRest);

private:
  /// A line of a work item: its token slice, its number, the vectors of
  /// `e.width` lanes, its number among those that are taken together, the half
  /// of a panel, and its first block.
  struct Line {
    ArrayRef<Index> leading;
    Index number;
    ArrayRef<Index> lanes;
    Index inGroup = Index::constant(0);
    int64_t half = 0;
    Value low = {};
  };
  /// Features of a line that a tile makes, from `first` on. The first tile
  /// converts the rows of a k-block, for the others.
  struct Tile {
    Index first;
    int64_t rows;
    bool prefetches, isFirst;
    /// How many tiles come before it.
    Index number;
  };

  using LaneBody = llvm::function_ref<void(ArrayRef<Index>, Index)>;
  void emitItems(int64_t tiles,
                 llvm::function_ref<void(Index, LaneBody)> forLanes);
  void emitLine(const Line &line);
  void emitPanels(const Line &line);
  void emitKBlock(const Line &line, Value low, Value from, Value to);
  void forTiles(llvm::function_ref<void(const Tile &)> body);
  void emitTile(const Line &line, const Tile &tile, Value low, Value high,
                ValueRange inits);
  /// A block that the sums of a tile take in: its slot, its row of features,
  /// its number in the view, and in the k-block.
  struct Block {
    Index slot, position, number, inKBlock;
  };
  SmallVector<Value> emitBlock(const Line &line, const Tile &tile, Value low,
                               Value first, int64_t i, int64_t count,
                               ValueRange sums);
  SmallVector<Value> emitBlocks(const Line &line, const Tile &tile, Value low,
                                Value from, Value to, int64_t count,
                                ValueRange sums);
  Value readX(const Line &line, const Tile &tile, const Block &block,
              Index feature, int64_t vector);
  Value readRow(const Line &line, const Index &position, Index feature,
                Index lane);
  SmallVector<Index> getRowPlace(const Block &block, Index feature,
                                 int64_t vector);
  void prefetchRow(const Line &line, const Index &position, Index feature);
  void multiply(const Line &line, const Tile &tile, const Block &block,
                Index feature, MutableArrayRef<Value> sums);
  void multiplyPair(const Line &line, const Tile &tile, const Block &block,
                    Index feature, MutableArrayRef<Value> sums);
  SmallVector<Value> getStart(const Line &line, const Tile &tile);
  void prepare(Value from, Value to);
  void copy(Index slot, Index number);
  void pack(Index slot, Index number);
  void prefetchNext(const Line &line);
  void prefetchStreams(const Line &line, const Tile &tile, Index step);
  void roundSums(const Line &line);
  void prefetchResults(const Line &line, const Tile &tile, Index block);
  void emitLines(const Line &group);
  void emitEpilogue(const Line &group, Index number);
  void emitSquares(const Line &group);
  SmallVector<Index> findSums(const Line &group, Index feature, Index row,
                              int64_t vector, Index lane, Index within);

  SmallVector<Index> getOutPlace(const Line &line, Index first, int64_t number);
  SmallVector<Index> getSumPlace(const Line &line, Index first, int64_t number);
  Value readWeight(const Block &block, Index feature, Index output);
  Value readPair(const Block &block, Index feature, Index output);
  bool usesPairs() const { return hasPairs && canZip(e.target, e.width); }
  bool usesSplit() const { return isSplit && e.width == panel; }
  /// `sums` rounded, with lanes in the order of tokens.
  Value round(Value sums) {
    if (usesSplit())
      return joinLanes(e, sums, outType);
    return e.convert(usesPairs() ? unzip(e, sums) : sums, outType);
  }
  Index getEntry(Index row, Index col);
  Index getPacked(Index feature, Index output);

  Emitter &e;
  SpMMOp op;
  Value output;
  PatternView view;
  Epilogue epilogue;
  /// Lines that are taken together: their features are whole squares, if any
  /// are transposed.
  int64_t together;
  /// The sums of these lines, [features * vectors, lanes], if they lie nowhere
  /// else.
  Value own;
  /// Work items have whole tiles of lanes.
  bool isFull = false;
  Activations activations;
  LineReader windows;
  /// The values in the order of the view, [slots, rows, columns], if they are
  /// put there.
  Value ordered;
  ArrayRef<Stream> streams;
  /// For 16-bit floats, a work item converts the values of a k-block,
  /// [blocks, entries], or packs them in pairs, once for all tiles, and keeps
  /// the sums of a line, [features, lanes], which it rounds once.
  Value wide, total;
  /// The converted rows of a k-block, [features, lanes].
  Value rows;
};

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_SPMMEMITTER_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order in which a kernel goes through single weights.

#ifndef BSR_LIB_CODEGEN_CPU_WEIGHTORDER_H
#define BSR_LIB_CODEGEN_CPU_WEIGHTORDER_H

#include "SparseKernels.h"

namespace mlir::bsr::cpu {

/// An order of the weights of a pattern of 1x1 blocks, for a product whose
/// activations are summed up in chunks that stay in the first-level cache. In
/// each chunk, and each part of the lines, lines are sorted by how many weights
/// they have there: as many come one after the other in a *run*, so that the
/// processor predicts where their loops end. Weights lie in this order, with
/// the row in the chunk that each one is multiplied by, in 16 bits.
///
/// The kernel itself makes the order, in every launch: a weight costs as much
/// there as with 100 to 200 tokens of the product.
class WeightOrder {
public:
  /// The order in which the kernel of `op` goes through weights; nothing if
  /// its schedule is another.
  static std::optional<WeightOrder> match(Operation *op, CPUTarget target);
  /// The order for `op`, `bsr.spmm` or `bsr.sddmm`; nothing if there is none:
  /// blocks are larger, numbers are not f32, or tokens are no whole tiles.
  static std::optional<WeightOrder> find(Operation *op, CPUTarget target);
  /// There are enough tokens and weights.
  bool isWorthIt;

  /// The memory that it takes.
  SmallVector<MemRefType> getScratch() const;

  /// Emits what puts the weights `values` of the lines of `view` in order, or
  /// just their rows if there are none yet (null), into `scratch`, memory of
  /// the types of `getScratch`.
  void emit(Emitter &e, const PatternView &view, Value values,
            ValueRange scratch);

  /// A part of the lines in a chunk of the features that are summed up.
  struct Piece {
    Index part, chunk;
  };
  /// Calls `body` for each run of `piece`, from that of `least` weights on: how
  /// many weights a line has, the lines by their number in the piece, and the
  /// place of the first weight of the first line.
  using RunBody = llvm::function_ref<void(Value, Value, Value, Value)>;
  void forRuns(Emitter &e, const Piece &piece, int64_t least, RunBody body);
  /// Line `number` of `piece`.
  Index getLine(Emitter &e, const Piece &piece, Index number);
  /// The features that `count` weights from `place` on belong to.
  SmallVector<Index> getFeatures(Emitter &e, const Piece &piece, Index place,
                                 int64_t count);
  /// The place in the view of the first weight of line `number` of `piece`.
  Value getViewPlace(Emitter &e, const Piece &piece, Index number);
  /// The vectors of `e.width` tokens of tile number `tile`.
  SmallVector<Index> getLanes(Emitter &e, Index tile);
  /// Tokens of a tile, whose vectors a kernel takes at once.
  int64_t getTile(CPUTarget target) const { return panels * target.panel(); }

  /// Weights of a part, at most.
  int64_t getPartSlots() const {
    return std::min(pattern.getSlots(), partLines * features);
  }

  /// Vectors of a panel that a kernel takes at once.
  int64_t panels;
  int64_t parts, chunks;
  /// Lines of a part, features of a chunk, and all of these.
  int64_t partLines, chunk, features;

  /// The weights in this order, [slots], if there are any yet.
  Value weights;

private:
  WeightOrder(PatternType pattern, View walked, bool areMade)
      : pattern(pattern), areMade(areMade) {
    lines = pattern.getNumLines(walked);
    features = pattern.getNumLines(getOther(walked));
  }
  /// The feature that the rows of chunk `number` count from.
  Index getBase(Emitter &e, Index number);
  void findStarts(Emitter &e, const PatternView &view);
  void sortPiece(Emitter &e, const Piece &piece);
  void gather(Emitter &e, const PatternView &view, Value values, Index slice);

  PatternType pattern;
  /// The weights are results.
  bool areMade;
  int64_t lines;

  /// Where each line's weights of each chunk begin in the view, and where its
  /// last ones end, [lines, chunks + 1].
  Value starts;
  /// Of each piece where runs end, of no weight, of one, ..., among the lines;
  /// and last how many weights a line has at most, [parts, chunks, chunk + 2].
  Value ends;
  /// The lines of each piece in their order, [parts, chunks, lines]; and of
  /// each the place of its first weight in the view, and in this order, and how
  /// many there are, [parts, chunks, lines, 3].
  Value order, spans;
  /// The rows of weights, of all or in their chunk, [slots].
  Value rows;
};

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_WEIGHTORDER_H

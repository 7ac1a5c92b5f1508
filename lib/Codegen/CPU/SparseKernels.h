// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the kernels of the dialect's operations share.

#ifndef BSR_CODEGEN_CPU_SPARSEKERNELS_H
#define BSR_CODEGEN_CPU_SPARSEKERNELS_H

#include "bsr/Codegen/CPU/Kernels.h"
#include "bsr/Dialect/Schedules.h"

namespace mlir::bsr::cpu {

/// Where the dimensions of activations are: features at `featureDim`, lanes
/// last if that leaves a dimension for them (`bsr-layout` sees to it; without
/// lanes, products are right and scalar), others leading.
struct Activations {
  Activations(ArrayRef<int64_t> shape, int64_t featureDim)
      : featureDim(featureDim),
        hasLanes(featureDim + 1 != static_cast<int64_t>(shape.size())),
        tokens(hasLanes ? shape.back() : 1),
        leading(hasLanes ? shape.drop_back() : shape) {
    leading.erase(leading.begin() + featureDim);
  }

  SmallVector<Index> at(ArrayRef<Index> outer, Index feature,
                        Index lane) const {
    SmallVector<Index> position(outer);
    position.insert(position.begin() + featureDim, feature);
    if (hasLanes)
      position.push_back(lane);
    return position;
  }

  int64_t featureDim;
  bool hasLanes;
  /// The extent of the lanes, and those of the leading token dimensions.
  int64_t tokens;
  SmallVector<int64_t> leading;
};

/// Calls `body` for the lines of part `part` of `parts` of a pattern view with
/// `lines` lines, cut so that blocks and lines together are equally many. A
/// line may be `together` lines of the view.
void forLines(Emitter &e, const PatternView &view, int64_t lines, int64_t parts,
              Index part, llvm::function_ref<void(Index)> body,
              int64_t together = 1);

/// How many parts to cut `lines` in, if each is an item for each of `others`.
int64_t getParts(int64_t lines, int64_t others);

/// How the kernel of `op`, a `bsr.spmm` or a `bsr.sddmm`, goes through it: as
/// its attribute says, and else as measurements say. Has a walk, and of one
/// that gathers rows and panels; `ahead` only if the attribute has.
ProductSchedule getSchedule(Operation *op, CPUTarget target);
/// Checks that there is a kernel for what the attribute of `op` says.
LogicalResult verifySchedule(Operation *op, CPUTarget target);

/// The memory that the kernel of `op` puts its values in the order of blocks
/// in; null if it reads them where they lie. Of blocks that read or make one
/// feature, values are too few to fetch each from anywhere, panel after panel.
MemRefType getOrderedValues(SpMMOp op, CPUTarget target);
/// Emits what puts the values of `op` in the order of `view`, which its kernel
/// walks: slices of them are work items.
void emitOrderedValues(Emitter &e, SpMMOp op, const PatternView &view,
                       Value ordered);
/// What the epilogue of a product reads or writes beside the sums, as these
/// lie.
struct Stream {
  Value memref;
  bool isWritten;
};
/// A product without a batch, and one that gathers as `schedule` says, or of
/// one point of a batch. `ordered`: memory of `getOrderedValues`, if there is
/// any. What gathers prefetches `streams`.
void emitSpMM(Emitter &e, SpMMOp op, Value output, const PatternViews &patterns,
              Epilogue epilogue = {}, Value ordered = {},
              ArrayRef<Stream> streams = {});
/// A product that gathers, with what its kernel has beside its operands.
struct GatheredSpMM {
  SpMMOp op;
  Value output;
  const PatternViews &patterns;
  Epilogue epilogue = {};
  Value ordered = {};
  ArrayRef<Stream> streams = {};
};
void emitGatheredSpMM(Emitter &e, const GatheredSpMM &kernel,
                      const ProductSchedule &schedule);
/// Blocks of one column: those of one row, in the transposed product.
inline bool isOfColumns(PatternType pattern) {
  return pattern.getBlockCols() == 1 && pattern.getBlockRows() > 1;
}
/// Blocks so wide that outer products need fewer loads than inner ones.
inline bool isWide(PatternType pattern) {
  return pattern.getBlockCols() >= 16 && pattern.getBlockRows() > 1;
}
/// The view in whose order a kernel goes through the blocks of `op` by `walk`.
View getWalkedView(SDDMMOp op, Walk walk, CPUTarget target);
/// Sums of outer or of inner products, by `walk`.
void emitSDDMM(Emitter &e, SDDMMOp op, Value output,
               const PatternViews &patterns, Walk walk);
void emitBlockScores(Emitter &e, BlockScoresOp op, Value output);
void emitSampleVec(Emitter &e, SampleVecOp op, Value output,
                   const PatternViews &patterns);
void emitReduceVec(Emitter &e, ReduceVecOp op, Value output,
                   const PatternViews &patterns);

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_SPARSEKERNELS_H

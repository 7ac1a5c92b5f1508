// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What products have alike whose thread blocks follow the plan of a
// pattern.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_PLANNEDSPMM_H
#define BSR_LIB_CODEGEN_GPU_SPMM_PLANNEDSPMM_H

#include "LinePlan.h"
#include "SpMMTile.h"
#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// Memory for the sums of parts of groups (`LinePlan`): of each thread those
/// that it has in registers.
struct PartSums {
  /// Parts and, along tokens, tiles, of which each is that of a thread block,
  /// or of as many as `share` one; of these the threads that have
  /// sums, and how many each has.
  int64_t parts, share, tiles, threads, sums;

  MemRefType getType(MLIRContext *context) const;

  /// Stores the sums of a thread of a part, in block `rank` of those that share
  /// it.
  void store(BlockBuilder &b, Value memory, Value part, Value rank,
             ValueRange values) const;
  /// The sums of a thread with those of the parts of `range`, in their order.
  SmallVector<Value> add(BlockBuilder &b, Value memory, const ChunkRange &range,
                         Value rank, ValueRange values) const;

private:
  /// Sums that lie side by side.
  int64_t getLength() const;
};

/// What the threads of a launch are handed.
struct SpMMLaunch {
  KernelBody &kernel;
  /// The arrays of the plan, and then the memory of `PlannedSpMM::getScratch`.
  SmallVector<Value> memory;
  /// Where sums are stored, if there is no epilogue.
  StoredRows y;
  /// Tensor maps of the activations and of the values, if boxes are copied.
  Value xMap, valuesMap;
};

/// A `bsr.spmm` by thread blocks that follow a plan of its pattern: each
/// has a group of lines, or a part of one that is long, and some tokens.
class PlannedSpMM : public Product {
public:
  std::optional<PatternPlan> getPlan() override;
  /// The memory for sums of parts, and for the epilogue.
  SmallVector<MemRefType> getScratch() override;

protected:
  /// Thread blocks that share activations, at most.
  static constexpr int64_t mostShares = 4;
  /// A tile is given, and not the model's choice: long groups are cut, however
  /// short the launch is.
  static bool isTileGiven(GPUAttr target) {
    return target.getTileOutputs() != 0 || target.getTileTokens() != 0 ||
           target.getShareOutputs() != 0;
  }
  /// Sets the operation and the shape; false if its blocks do not fill packed
  /// ones.
  bool setShape(const BlockProduct &operands, bool isOnTensorCores);
  /// Sets `tile`, the plan of one of warps, and the parts of long groups; false
  /// if there is no such tile.
  bool chooseTile(SpMMTile &tile, GPUAttr chip);
  /// The result, of whose tokens a warp has some.
  ResultSpace getRows(int64_t warpTokens);
  /// What a sum of `output`, or of the last one if that is beyond, begins with,
  /// in f32: the bias, or zero if there is none, or in a part.
  Value loadStart(BlockBuilder &b, const KernelBody &kernel,
                  const ChunkRange &range, Value output);
  /// Begins the epilogue, or, if there is none, makes the rows where sums are
  /// stored, in vectors of `length`, or of 8 bytes if that is 0.
  SpMMLaunch begin(OpBuilder &b, KernelBody &kernel, ValueRange scratch,
                   int64_t length = 0);
  /// Makes tensor maps: of boxes of 64 tokens of a position, and of a block, of
  /// whose rows `shareTokens` thread blocks copy a part each.
  void createMaps(OpBuilder &b, SpMMLaunch &launch, int64_t shareTokens);
  /// Emits the launch of groups and parts, and the one that adds parts, whose
  /// blocks share no memory: for each of them and for each tile along tokens a
  /// block of `threads`, or of those that have sums, or a part of a cluster of
  /// blocks. What `body` emits is for one block.
  void launch(OpBuilder &b, const SpMMLaunch &launch, int64_t threads,
              int64_t sharedBytes,
              llvm::function_ref<void(BlockBuilder &, const ChunkRange &)> body,
              std::array<int64_t, 2> cluster = {1, 1});
  /// Emits what becomes of the sums of a thread, in block `rank` of those that
  /// share a group: `finish` for a whole one.
  void finish(BlockBuilder &b, const ChunkRange &range, ValueRange memory,
              Value rank, ValueRange sums,
              llvm::function_ref<void(ValueRange)> finish);

  SpMMOp op;
  SpMMShape shape;
  LinePlan plan;
  PartSums parts;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_PLANNEDSPMM_H

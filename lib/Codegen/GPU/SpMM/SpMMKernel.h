// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel of bsr.spmm, whatever multiplies and copies.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_SPMMKERNEL_H
#define BSR_LIB_CODEGEN_GPU_SPMM_SPMMKERNEL_H

#include "SpMMMainloop.h"
#include "SpMMTile.h"
#include "SplitKSums.h"
#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// A `bsr.spmm` by thread blocks that follow a plan of its pattern: each
/// has a group of lines, or a slice of one that is long, and some tokens.
/// Classes that derive from it choose a tile, and make the mainloop through the
/// plan; everything else is here.
class SpMMKernel : public Product {
public:
  std::optional<PatternPlan> getPlan() override;
  /// The memory for sums of slices, and for the epilogue.
  SmallVector<MemRefType> getScratch() override;
  /// The result, of whose tokens a warp has some; none of lanes, as an epilogue
  /// takes the sums of fragments.
  std::optional<ResultSpace> getSpace() override;
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

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
  /// Sets the plan that `tile` follows, its launch, and the slices of long
  /// groups.
  template <typename Tile>
  void setTile(const Tile &tile, GPUAttr target) {
    plan = tile.getCutPlan(shape, *findChip(target.getChip()),
                           isTileGiven(target));
    grid = tile.getGrid(shape);
    slices = {plan.numSlices, grid.cluster[0], tile.getTokenTiles(shape),
              blockThreads, tile.getSums(shape)};
  }
  /// The mainloop of a thread block.
  virtual std::unique_ptr<SpMMMainloop>
  createMainloop(const SpMMContext &product, BlockBuilder &b) const = 0;

  SpMMShape shape;

private:
  friend class SpMMEmitter;

  /// Begins the epilogue, or, if there is none, makes the rows where sums are
  /// stored; and tensor maps, if boxes are copied.
  SpMMLaunch begin(OpBuilder &b, KernelBody &kernel, ValueRange scratch);
  /// Emits the launch of groups and slices, and the one that adds slices, whose
  /// blocks share no memory: for each of them and for each tile along tokens a
  /// thread block, or a cluster of them. What `body` emits is for one block.
  void
  launch(OpBuilder &b, const SpMMLaunch &launch,
         llvm::function_ref<void(BlockBuilder &, const ChunkRange &)> body);
  /// What a sum of `output`, or of the last one if that is beyond, begins with,
  /// in f32: the bias, or zero if there is none, or in a slice.
  Value loadStart(BlockBuilder &b, const KernelBody &kernel,
                  const ChunkRange &range, Value output);
  /// Emits `finish` for the sums of a thread, or stores them for another launch
  /// that adds them: block `rank` of those that share a group.
  void finish(BlockBuilder &b, const ChunkRange &range, ValueRange memory,
              Value rank, ValueRange sums,
              llvm::function_ref<void(ValueRange)> finish);

  SpMMOp op;
  SpMMGrid grid;
  SpMMPlan plan;
  SplitKSums slices;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_SPMMKERNEL_H

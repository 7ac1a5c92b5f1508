// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How stored blocks of products of activations are cut for thread blocks
// and warps.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_WINDOWTILE_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_WINDOWTILE_H

#include "SampledShape.h"
#include "SampledWindows.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "bsr/Codegen/GPU/Core/TileSearch.h"
#include "bsr/Codegen/GPU/Core/Warpgroups.h"

namespace mlir::bsr::gpu {

/// What a thread block has of a `bsr.sddmm` at a time: a window of
/// `SampledWindows`, of which a stage of shared memory has the rows of all
/// lines and the columns of all positions for some tokens, a step. Or a
/// cluster has a window, and each of its thread blocks in a stage the rows
/// and columns that it multiplies.
struct WindowTile {
  /// The fewest steps that a thread block has in a row.
  static constexpr int64_t leastSteps = 8;
  /// Of a thread block of a cluster, and rows and columns of its blocks.
  static constexpr int64_t warpgroups = 2, clusterExtent = 64;

  /// Of a window: lines and positions.
  int64_t lines, slabs;
  /// Of a stage, bytes of an element, and stages.
  int64_t tokens, elementBytes, stages;
  /// Thread blocks of a launch, or clusters, which share all steps of all
  /// windows.
  int64_t grid;
  /// Thread blocks of a cluster, 1 for none, and places of a stage of
  /// theirs.
  int64_t shares = 1, places = 0;

  /// The tile that takes least time on `chip`, as the model has it, if one
  /// fits; of those whose lines have `rows` rows, and of those of clusters of
  /// `shares`, if there are such and it is not 0.
  static std::optional<WindowTile> choose(const SampledShape &shape,
                                          const Chip &chip, int64_t rows,
                                          int64_t shares);

  /// What a launch does, and the one that adds up what it leaves, for a random
  /// pattern whose slots all hold a block, about.
  KernelWork getWork(const SampledShape &shape) const;

  /// Of a warp, and of a thread block.
  static int64_t getWarpBlocks(const SampledShape &shape) {
    // So many sums a thread leave registers for what is multiplied.
    constexpr int64_t mostOfMiddle = 160;
    int64_t sums = getBlockSums(shape);
    return (sums == 32 ? mostOfMiddle : mostSums) / sums;
  }
  /// Sums that a thread keeps of a block, and in all.
  static int64_t getBlockSums(const SampledShape &shape) {
    return shape.getBlockElements() / BlockBuilder::warpThreads;
  }
  static int64_t getSums(const SampledShape &shape) {
    return getWarpBlocks(shape) * getBlockSums(shape);
  }
  static int64_t getBlocks(const SampledShape &shape) {
    return blockWarps * getWarpBlocks(shape);
  }
  SampledWindows getWindows(const SampledShape &shape) const;

  /// Steps of a window: those of all batches.
  int64_t getStepsOfBatch(const SampledShape &shape) const {
    return llvm::divideCeil(shape.rows.tokens, tokens);
  }
  int64_t getSteps(const SampledShape &shape) const {
    return shape.rows.batches * getStepsOfBatch(shape);
  }
  /// Steps that a thread block has together: a window with few of them is
  /// one block's.
  int64_t getUnit(const SampledShape &shape) const {
    return shares == 1 && getSteps(shape) <= leastSteps ? getSteps(shape) : 1;
  }
  /// What an owner's share costs at least, as WindowShares counts it.
  int64_t getLeastShare(const SampledShape &shape) const {
    int64_t least = std::min(leastSteps, getSteps(shape));
    return shares == 1 ? least : least * getWindows(shape).getLeastCost();
  }
  /// What a step of all windows costs at most.
  int64_t getMostCost(const SampledShape &shape) const;
  /// Windows of which a thread block has steps, at most.
  int64_t getParts(const SampledShape &shape) const;

  /// Bytes of a row in shared memory, of all rows of the lines, and of the
  /// columns of a position.
  int64_t getPitch() const { return tokens * elementBytes; }
  int64_t getRowBytes(const SampledShape &shape) const {
    return lines * shape.getBlockRows() * getPitch();
  }
  int64_t getSlabBytes(const SampledShape &shape) const {
    return shape.getBlockCols() * getPitch();
  }
  int64_t getStageBytes(const SampledShape &shape) const {
    if (shares != 1)
      return places * getSlabBytes(shape);
    return getRowBytes(shape) + slabs * getSlabBytes(shape);
  }
  int64_t getSharedBytes(const SampledShape &shape) const {
    return shares == 1
               ? stages * getStageBytes(shape)
               : BarrierPipeline::getSharedBytes(stages, getStageBytes(shape));
  }

private:
  /// Of a window: what its lines and positions are expected to be.
  struct Expected {
    double windows, ofWindow, positions;
  };
  Expected getExpected(const SampledShape &shape) const;
  KernelWork getClusterWork(const SampledShape &shape) const;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_WINDOWTILE_H

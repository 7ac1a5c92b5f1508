// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How stored blocks of products of activations are cut for thread blocks
// and warps.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_SDDMMTILE_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_SDDMMTILE_H

#include "SDDMMPlan.h"
#include "SDDMMShape.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "bsr/Codegen/GPU/Core/TileSearch.h"
#include "bsr/Codegen/GPU/Core/Warpgroups.h"

namespace mlir::bsr::gpu {

/// What a thread block has of a `bsr.sddmm` at a time: a window of
/// `SDDMMPlan`, of which a stage of shared memory has the rows of all
/// lines and the columns of all positions for some tokens, a step. Or a
/// cluster has a window, and each of its thread blocks in a stage the rows
/// and columns that it multiplies.
struct SDDMMTile {
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
  /// Thread blocks of a cluster, 1 for none, and buffers that one of its
  /// stages has.
  int64_t shares = 1, buffers = 0;

  /// The tile that takes least time on `chip`, as the model has it, if one
  /// fits; of those whose lines have `rows` rows, and of those of clusters of
  /// `shares`, if there are such and it is not 0.
  static std::optional<SDDMMTile> choose(const SDDMMShape &shape,
                                         const Chip &chip, int64_t rows,
                                         int64_t shares);

  /// What a launch does, and the one that adds up what it leaves, for a random
  /// pattern whose slots all hold a block, about.
  KernelWork getWork(const SDDMMShape &shape) const;

  /// Of a warp, and of a thread block.
  static int64_t getWarpBlocks(const SDDMMShape &shape) {
    // So many sums a thread leave registers for what is multiplied.
    constexpr int64_t mostOfMiddle = 160;
    int64_t sums = getBlockSums(shape);
    return (sums == 32 ? mostOfMiddle : mostSums) / sums;
  }
  /// Sums that a thread keeps of a block, and in all.
  static int64_t getBlockSums(const SDDMMShape &shape) {
    return shape.getBlockElements() / BlockBuilder::warpThreads;
  }
  static int64_t getSums(const SDDMMShape &shape) {
    return getWarpBlocks(shape) * getBlockSums(shape);
  }
  static int64_t getBlocks(const SDDMMShape &shape) {
    return blockWarps * getWarpBlocks(shape);
  }
  SDDMMPlan getWindows(const SDDMMShape &shape) const;

  /// Steps of a window: those of all batches.
  int64_t getStepsOfBatch(const SDDMMShape &shape) const {
    return llvm::divideCeil(shape.rows.tokens, tokens);
  }
  int64_t getSteps(const SDDMMShape &shape) const {
    return shape.rows.batches * getStepsOfBatch(shape);
  }
  /// Steps that a thread block has together: a window with few of them is
  /// one block's.
  int64_t getUnit(const SDDMMShape &shape) const {
    return shares == 1 && getSteps(shape) <= leastSteps ? getSteps(shape) : 1;
  }
  /// What an owner's share costs at least, as StreamK counts it.
  int64_t getLeastShare(const SDDMMShape &shape) const {
    int64_t least = std::min(leastSteps, getSteps(shape));
    return shares == 1 ? least : least * getWindows(shape).getLeastCost();
  }
  /// What a step of all windows costs at most.
  int64_t getMostCost(const SDDMMShape &shape) const;
  /// Windows of which a thread block has steps, at most.
  int64_t getMostWindows(const SDDMMShape &shape) const;

  /// Bytes of a row in shared memory, of all rows of the lines, and of the
  /// columns of a position.
  int64_t getPitch() const { return tokens * elementBytes; }
  int64_t getRowBytes(const SDDMMShape &shape) const {
    return lines * shape.getBlockRows() * getPitch();
  }
  int64_t getSlabBytes(const SDDMMShape &shape) const {
    return shape.getBlockCols() * getPitch();
  }
  int64_t getStageBytes(const SDDMMShape &shape) const {
    if (shares != 1)
      return buffers * getSlabBytes(shape);
    return getRowBytes(shape) + slabs * getSlabBytes(shape);
  }
  int64_t getSharedBytes(const SDDMMShape &shape) const {
    return shares == 1
               ? stages * getStageBytes(shape)
               : BarrierPipeline::getSharedBytes(stages, getStageBytes(shape));
  }

  std::string describe() const;

private:
  /// Of a window: what its lines and positions are expected to be.
  struct Expected {
    double windows, ofWindow, positions;
  };
  Expected getExpected(const SDDMMShape &shape) const;
  KernelWork getClusterWork(const SDDMMShape &shape) const;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_SDDMMTILE_H

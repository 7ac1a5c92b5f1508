// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a product with a sparse weight is cut for thread block clusters and
// warpgroups.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_WARPGROUPTILE_H
#define BSR_LIB_CODEGEN_GPU_SPMM_WARPGROUPTILE_H

#include "SpMMPlan.h"
#include "SpMMTile.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "bsr/Codegen/GPU/Core/Warpgroups.h"

namespace mlir::bsr::gpu {

/// What a thread block computes at a time, what its warpgroups do of it,
/// and which blocks share copies. A unit is of 64 outputs: one line, or several
/// side by side, whose absent blocks are zero where one of them is present.
struct WarpgroupTile {
  static constexpr int64_t warpgroups = 2;
  /// Those of the warpgroups, and the warp that copies.
  static constexpr int64_t threads =
      warpgroups * warpgroupThreads + BlockBuilder::warpThreads;

  /// Of the thread block, and of a warpgroup.
  int64_t units, tokens, groupUnits, groupTokens;
  /// Thread blocks of a cluster: those along outputs get the same
  /// activations, those along tokens the same blocks of the weight.
  int64_t shareOutputs, shareTokens;
  int64_t stages;

  /// The tile that takes least time on `chip`, as the model has it; none if it
  /// has no warpgroups, or none fits. Sizes that are given are not 0.
  static std::optional<WarpgroupTile>
  choose(const SpMMShape &shape, const Chip &chip, int64_t outputs,
         int64_t tokens, int64_t shareOutputs, int64_t shareTokens);

  /// What a launch does for a random pattern whose slots all hold a block,
  /// about.
  KernelWork getWork(const SpMMShape &shape) const;
  std::string describe(const SpMMShape &shape) const;

  /// The plan that a launch of this tile follows: a group has the lines of a
  /// cluster.
  SpMMPlan getPlan(const SpMMShape &shape) const;
  /// That plan; long groups may be cut if a launch on `chip` gains by it.
  SpMMPlan getCutPlan(const SpMMShape &shape, const Chip &chip,
                      bool isGiven) const;
  /// Tiles along tokens of all batches, those of whole clusters.
  int64_t getTokenTiles(const SpMMShape &shape) const {
    const Activations &x = shape.activations;
    int64_t tiles = x.batches * llvm::divideCeil(x.tokens, tokens);
    return llvm::alignTo(tiles, shareTokens);
  }
  SpMMGrid getGrid(const SpMMShape &shape) const {
    return {threads,
            BarrierPipeline::getSharedBytes(stages, getStageBytes(shape)),
            tokens,
            groupTokens,
            {shareOutputs, shareTokens},
            /*areBoxes=*/true};
  }
  /// Sums of a thread.
  int64_t getSums(const SpMMShape &) const {
    return groupUnits * groupTokens * warpgroupRows / warpgroupThreads;
  }

  static int64_t getUnitLines(const SpMMShape &shape) {
    return warpgroupRows / shape.outBlock;
  }
  /// Lines of a thread block, and of a cluster.
  int64_t getLines(const SpMMShape &shape) const {
    return units * getUnitLines(shape);
  }
  int64_t getClusterLines(const SpMMShape &shape) const {
    return shareOutputs * getLines(shape);
  }
  int64_t getClusterBlocks() const { return shareOutputs * shareTokens; }

  /// Bytes of the activations of one position, of a unit's blocks there, and of
  /// both in a stage.
  int64_t getSlabBytes(const SpMMShape &shape) const {
    return tokens * shape.inBlock * elementBytes;
  }
  static int64_t getUnitBytes(const SpMMShape &shape) {
    return warpgroupRows * shape.inBlock * elementBytes;
  }
  int64_t getStageBytes(const SpMMShape &shape) const {
    return getSlabBytes(shape) + units * getUnitBytes(shape);
  }
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_WARPGROUPTILE_H

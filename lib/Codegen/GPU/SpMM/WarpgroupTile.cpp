// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a product with a sparse weight is cut for thread block clusters and
// warpgroups.

#include "WarpgroupTile.h"
#include "bsr/Codegen/GPU/Core/TileSearch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// Tokens of a row of 128 bytes, which copies are cut in.
static constexpr int64_t boxTokens = StageLayout::boxTokens;
static constexpr int64_t wantedStages = 4, leastStages = 2, mostStages = 8;
/// Thread blocks of a cluster, as many as every chip takes. Many have to
/// find room on one part of a chip at a time: more than `fewShared` have to
/// gain something.
static constexpr int64_t mostShared = 8, fewShared = 4;
static constexpr double leastGain = 1.05;
/// Lines that a plan tells apart.
static constexpr int64_t mostLines = 32;

std::string WarpgroupTile::describe(const SpMMShape &) const {
  return llvm::formatv("{0}x{1} outputs and tokens, a warpgroup {2}x{3}, "
                       "clusters of {4}x{5}, {6} stages",
                       units * warpgroupRows, tokens,
                       groupUnits * warpgroupRows, groupTokens, shareOutputs,
                       shareTokens, stages);
}

KernelWork WarpgroupTile::getWork(const SpMMShape &shape) const {
  double density = shape.getDensity();
  KernelWork work;
  work.blocks =
      double(llvm::divideCeil(shape.numLines, getClusterLines(shape)) *
             shareOutputs * getTokenTiles(shape));
  work.warps = double(threads) / BlockBuilder::warpThreads;

  // Of a thread block.
  double chunks =
      double(shape.length) * getUnion(density, getClusterLines(shape));
  double present = double(shape.length) * double(units) *
                   getUnion(density, getUnitLines(shape));
  double stored = double(shape.length * getLines(shape)) * shape.getDensity();
  double depth = double(shape.inBlock) / warpgroupDepth;
  // Products that warpgroups issue: each unit is one's, or all have it.
  double issued = present * depth * double(tokens) / double(groupTokens);
  double flops =
      2.0 * present * double(warpgroupRows * shape.inBlock) * double(tokens);
  work.warpgroupFlops[static_cast<unsigned>(TensorType::Half)] = flops;
  // Instructions of PTX, counted in kernels that were emitted.
  constexpr double perChunk = 30, perCopyChunk = 60, perLine = 2,
                   perProduct = 8, perSum = 2;
  double warpsOfGroup = double(warpgroupThreads) / BlockBuilder::warpThreads;
  double consumer = chunks * perChunk +
                    issued / double(warpgroups) * perProduct +
                    perSum * double(groupUnits * groupTokens) / 2;
  double producer =
      chunks * (perCopyChunk + perLine * double(getClusterLines(shape)));
  work.instructions = consumer * warpgroups * warpsOfGroup + producer;
  work.longestWarp = std::max(consumer, producer);

  double operands = issued * warpgroupDepth * elementBytes *
                    double(warpgroupRows + groupTokens);
  double slabs = chunks * double(getSlabBytes(shape));
  double stores = double(units * warpgroupRows) * double(tokens) *
                  double(shape.outputBytes);
  // Of the cluster's positions, those of the thread block.
  double ownShare = getUnion(density, getLines(shape)) /
                    getUnion(density, getClusterLines(shape));
  // Absent blocks of a unit that is there are zeros.
  double filled = present * double(getUnitBytes(shape));
  work.sharedBytes = operands + slabs * ownShare + filled + stores;
  work.l2Bytes = slabs / double(shareOutputs) +
                 stored * shape.getStoredBytes() / double(shareTokens) + stores;
  work.multiplyByBlocks();
  work.memoryBytes = shape.getMemoryBytes();
  return work;
}

SpMMPlan WarpgroupTile::getPlan(const SpMMShape &shape) const {
  return SpMMPlan::getByLine(shape.numLines, shape.length, shape.slots,
                             getClusterLines(shape));
}

SpMMPlan WarpgroupTile::getCutPlan(const SpMMShape &shape, const Chip &chip,
                                   bool isGiven) const {
  SpMMPlan plan = getPlan(shape);
  double mean = double(shape.length) *
                getUnion(shape.getDensity(), getClusterLines(shape));
  KernelWork work = getWork(shape);
  plan.cutLongGroups(chip, shareOutputs * getTokenTiles(shape),
                     double(plan.getFullChunks()) / mean,
                     isGiven ? nullptr : &work);
  return plan;
}

/// The tile of which units, tokens and shares are known, if it fits.
static std::optional<WarpgroupTile>
complete(WarpgroupTile tile, const SpMMShape &shape, const Chip &chip) {
  constexpr int64_t groups = WarpgroupTile::warpgroups;
  // Warpgroups have units of their own, or else tokens.
  bool isAlongUnits = tile.units % groups == 0;
  tile.groupUnits = isAlongUnits ? tile.units / groups : tile.units;
  tile.groupTokens = isAlongUnits ? tile.tokens : tile.tokens / groups;
  tile.stages = BarrierPipeline::getStages(
      chip.sharedLimit, tile.getStageBytes(shape), mostStages);
  // A copy is of a box of tokens, and of 8 rows of a block or more.
  constexpr int64_t leastRows = 8;
  if (tile.groupTokens % boxTokens || tile.getSums(shape) > mostSums ||
      tile.stages < leastStages || tile.getClusterBlocks() > mostShared ||
      tile.getClusterLines(shape) > mostLines ||
      tile.tokens / boxTokens % tile.shareOutputs ||
      shape.blockRows / tile.shareTokens < leastRows ||
      !tile.getPlan(shape).fits(chip.sharedLimit))
    return std::nullopt;
  return tile;
}

std::optional<WarpgroupTile>
WarpgroupTile::choose(const SpMMShape &shape, const Chip &chip, int64_t outputs,
                      int64_t tokens, int64_t shareOutputs,
                      int64_t shareTokens) {
  // Small blocks are those of warps.
  if (chip.wgmmaRate == 0 || shape.getPackedBlocks() != 1 ||
      shape.inBlock % warpgroupDepth)
    return std::nullopt;
  TileSearch<WarpgroupTile> search(
      chip, [&](const WarpgroupTile &tile) { return tile.describe(shape); });
  auto consider = [&](const WarpgroupTile &sizes) {
    auto tile = complete(sizes, shape, chip);
    // A few lines beyond the last are computed for nothing, no whole thread
    // blocks.
    if (!tile ||
        search.isTooLarge(tile->getClusterLines(shape), shape.numLines))
      return;
    unsigned lacks = tile->stages < wantedStages ? 1 : 0;
    double factor = tile->getClusterBlocks() > fewShared ? leastGain : 1;
    search.consider(*tile, tile->getWork(shape), {lacks, factor});
  };
  auto isWanted = [](int64_t given, int64_t value) {
    return given == 0 || given == value;
  };
  for (int64_t units : {1, 2, 4})
    for (int64_t someTokens : {64, 128, 256})
      for (int64_t someOutputs : {1, 2, 4})
        for (int64_t others : {1, 2, 4})
          if (isWanted(outputs, units * warpgroupRows) &&
              isWanted(tokens, someTokens) &&
              isWanted(shareOutputs, someOutputs) &&
              isWanted(shareTokens, others))
            consider({units, someTokens, /*groupUnits=*/0, /*groupTokens=*/0,
                      someOutputs, others, /*stages=*/0});
  return search.best;
}

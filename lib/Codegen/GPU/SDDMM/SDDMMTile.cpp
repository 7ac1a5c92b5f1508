// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How stored blocks of products of activations are cut for thread blocks
// and warps.

#include "SDDMMTile.h"
#include "bsr/Codegen/GPU/Core/TileSearch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

static constexpr int64_t wantedStages = 3, leastStages = 2, mostStages = 4;
/// Positions of a window beyond what is expected.
static constexpr double spareSlabs = 1.1;
/// Buffers of a stage of a cluster beyond those without which it might not do.
static constexpr int64_t spareBuffers = 6;
/// Multiprocessors among which clusters find room: those of a GPC of an H100
/// are 16 or 18.
static constexpr int64_t clusterRoom = 16;

/// Bytes of all operands and results.
static double getMemoryBytes(const SDDMMShape &shape) {
  const Activations &x = shape.rows;
  double elements =
      double(shape.pattern.getSlots()) * double(shape.getBlockElements());
  return double(x.batches * x.tokens) *
             double(x.features + shape.cols.features) *
             double(shape.elementBytes) +
         elements * double(shape.outputBytes);
}

SDDMMPlan SDDMMTile::getWindows(const SDDMMShape &shape) const {
  const PatternType &pattern = shape.pattern;
  return {/*numLines=*/pattern.getGridRows(),
          /*length=*/pattern.getGridCols(),
          pattern.getSlots(),
          lines,
          slabs,
          shares * getBlocks(shape),
          shares,
          buffers};
}

int64_t SDDMMTile::getMostCost(const SDDMMShape &shape) const {
  SDDMMPlan windows = getWindows(shape);
  int64_t most = windows.getMax();
  return shares == 1 ? most
                     : most * windows.getLeastCost() + windows.slots / shares;
}

int64_t SDDMMTile::getMostWindows(const SDDMMShape &shape) const {
  if (shares != 1) {
    // All but the first and the last one are whole.
    int64_t least = getWindows(shape).getLeastCost() * getSteps(shape);
    int64_t share = std::max(
        int64_t(llvm::divideCeil(getMostCost(shape) * getSteps(shape), grid)),
        getLeastShare(shape));
    return llvm::divideCeil(share, least) + 1;
  }
  int64_t whole = llvm::divideCeil(getWindows(shape).getMax(), grid);
  return getUnit(shape) == 1 ? whole + 1 : whole;
}

SDDMMTile::Expected SDDMMTile::getExpected(const SDDMMShape &shape) const {
  double numLines = double(shape.pattern.getGridRows());
  double length = double(shape.pattern.getGridCols());
  double stored = double(shape.pattern.getSlots());
  double groups = std::ceil(numLines / double(lines));
  double ofPosition = shape.getDensity() * std::min(double(lines), numLines) /
                      getUnion(shape.getDensity(), double(lines));
  // A window ends before the position that does not fit.
  double blocks = double(shares * getBlocks(shape));
  double full = std::max(1.0, blocks - ofPosition / 2);
  double most = std::min(full, double(slabs) * ofPosition);
  double windows = groups * std::max(1.0, std::ceil(stored / groups / most));
  return {windows, stored / windows,
          groups * length * getUnion(shape.getDensity(), double(lines))};
}

KernelWork SDDMMTile::getClusterWork(const SDDMMShape &shape) const {
  auto [windows, ofWindow, positions] = getExpected(shape);
  double stored = double(shape.pattern.getSlots());
  double steps = double(getSteps(shape)), members = double(shares);
  KernelWork work;
  work.blocks = double(grid) * members;
  work.warps = double(warpgroups * warpgroupThreads) /
                   double(BlockBuilder::warpThreads) +
               1;
  work.warpgroupFlops[static_cast<unsigned>(TensorType::Half)] =
      stored * 2.0 * double(shape.getBlockElements() * tokens) * steps;

  double linesOfWindow =
      double(lines) * (1 - std::exp(-ofWindow / double(lines)));
  // Rows go to all that have blocks of a line.
  double rowCopies = windows * (linesOfWindow + members - 1);
  double filled = stored + rowCopies;
  double read = 2 * stored;
  double copied = windows * linesOfWindow + positions;

  // Instructions of PTX, counted in kernels that were emitted.
  constexpr double perProduct = 14, perStep = 45, perCopyStep = 60;
  double warpsOfGroup =
      double(warpgroupThreads) / double(BlockBuilder::warpThreads);
  double inAll = steps * windows * members;
  double depth = double(getPitch() / fragmentBytes);
  work.instructions =
      inAll * (perStep * warpsOfGroup * warpgroups + perCopyStep) +
      steps * stored * perProduct * depth * warpsOfGroup;
  work.longestWarp = work.instructions / work.blocks / work.warps;

  double partials = windows + double(grid);
  double sums = partials * ofWindow * double(shape.getBlockElements()) * 4;
  double slab = steps * double(getSlabBytes(shape));
  work.sharedBytes = slab * (filled + read) + sums;
  work.l2Bytes = slab * copied + sums;
  work.memoryBytes = getMemoryBytes(shape);
  return work;
}

KernelWork SDDMMTile::getWork(const SDDMMShape &shape) const {
  if (shares != 1)
    return getClusterWork(shape);
  auto [windows, ofWindow, positions] = getExpected(shape);
  double stored = double(shape.pattern.getSlots());
  double steps = double(getSteps(shape));

  KernelWork work;
  work.blocks = double(grid);
  work.warps = double(blockWarps);
  double blockFlops = 2.0 * double(shape.getBlockElements() * tokens);
  bool isTF32 = elementBytes == 4;
  TensorType type = isTF32 ? TensorType::TF32 : TensorType::Half;
  work.tensorFlops[static_cast<unsigned>(type)] = stored * blockFlops * steps;

  // Rows are read again for each line of a warp's blocks.
  double rowsOfLine = double(shape.getBlockRows());
  double linesOfWindow =
      double(lines) * (1 - std::exp(-ofWindow / double(lines)));
  double changes = std::min(ofWindow, linesOfWindow + blockWarps - 1) * windows;
  double depth = double(getPitch()) / double(fragmentBytes);
  double multiplied = double(shape.getBlockElements()) /
                      double(fragmentRows * fragmentCols) * depth;
  double colMatrices = double(shape.getBlockCols() / fragmentRows) * depth;
  double rowMatrices = rowsOfLine / double(fragmentRows) * depth;
  double filled = windows * double(lines) * rowsOfLine +
                  positions * double(shape.getBlockCols());
  double copies = filled * double(getPitch() / copiedBytes) /
                  double(BlockBuilder::warpThreads);
  // Instructions of PTX, counted in kernels that were emitted.
  constexpr double perBlock = 9, perCopy = 8, perStep = 60;
  double perWindow = perStep * blockWarps;
  // Four words of each are rounded.
  double perMatrices = isTF32 ? 5 : 1;
  work.instructions =
      steps * (stored * (multiplied + colMatrices * perMatrices + perBlock) +
               changes * (rowMatrices * perMatrices + 2) + copies * perCopy +
               windows * perWindow);
  work.longestWarp = work.instructions / work.blocks / blockWarps;

  double rowBytes = double(getPitch());
  double partials = windows + double(grid);
  double elements = stored * double(shape.getBlockElements());
  // What is left, and read again, and the result.
  double sums = partials * ofWindow * double(shape.getBlockElements()) * 8 +
                elements * double(shape.outputBytes);
  work.sharedBytes = steps * rowBytes *
                         (filled + stored * double(shape.getBlockCols()) +
                          changes * rowsOfLine) +
                     sums;
  work.l2Bytes = steps * rowBytes * filled + sums;
  work.memoryBytes = getMemoryBytes(shape);
  return work;
}

/// The shares of thread blocks of a launch, or of clusters: `grid` of
/// `tile`, if that fits.
static bool setGrid(SDDMMTile &tile, const SDDMMShape &shape,
                    const Chip &chip) {
  SDDMMPlan windows = tile.getWindows(shape);
  int64_t cost = tile.getMostCost(shape) * tile.getSteps(shape);
  int64_t most = llvm::divideCeil(cost, tile.getLeastShare(shape));
  // All clusters are to run at one time.
  int64_t atOnce = tile.shares <= 2 ? chip.multiprocessors / tile.shares
                                    : chip.multiprocessors / clusterRoom *
                                          (clusterRoom / tile.shares);
  tile.grid = std::min(atOnce, most);
  return windows.fits(chip.sharedLimit) &&
         cost + tile.grid * tile.getLeastShare(shape) <= INT32_MAX &&
         tile.grid * tile.shares * tile.getMostWindows(shape) <=
             INT32_MAX /
                 (SDDMMTile::getBlocks(shape) * shape.getBlockElements());
}

/// The tile of so many lines and bytes of tokens, if it fits.
static std::optional<SDDMMTile> getTile(const SDDMMShape &shape,
                                        const Chip &chip, int64_t lines,
                                        int64_t rowBytes) {
  SDDMMTile tile;
  tile.lines = lines;
  tile.elementBytes = shape.elementBytes;
  tile.tokens = rowBytes / tile.elementBytes;
  int64_t blocks = SDDMMTile::getBlocks(shape);
  double expected = double(blocks) *
                    getUnion(shape.getDensity(), double(lines)) /
                    double(lines) / shape.getDensity();
  tile.slabs = std::min({int64_t(std::ceil(spareSlabs * expected)), blocks,
                         shape.pattern.getGridCols()});
  tile.stages = CopyPipeline::getStages(chip.sharedLimit,
                                        tile.getStageBytes(shape), mostStages);
  if (tile.stages < leastStages || !setGrid(tile, shape, chip))
    return std::nullopt;
  return tile;
}

/// The tile of clusters of `shares`, if it fits.
static std::optional<SDDMMTile> getClusterTile(const SDDMMShape &shape,
                                               const Chip &chip, int64_t lines,
                                               int64_t rowBytes,
                                               int64_t shares) {
  SDDMMTile tile;
  tile.lines = lines;
  tile.elementBytes = shape.elementBytes;
  tile.tokens = rowBytes / tile.elementBytes;
  tile.shares = shares;
  tile.slabs = std::min(shares * SDDMMTile::getBlocks(shape),
                        shape.pattern.getGridCols());
  int64_t least = lines + SDDMMTile::getBlocks(shape);
  for (tile.buffers = least + spareBuffers; tile.buffers >= least;
       --tile.buffers) {
    tile.stages = BarrierPipeline::getStages(
        chip.sharedLimit, tile.getStageBytes(shape), mostStages);
    if (tile.stages >= wantedStages)
      break;
  }
  tile.buffers = std::max(tile.buffers, least);
  if (tile.stages < leastStages || !setGrid(tile, shape, chip))
    return std::nullopt;
  return tile;
}

std::string SDDMMTile::describe() const {
  return llvm::formatv(
      "a window of {0}x{1} blocks, clusters of {2}, {3} tokens "
      "a stage, {4} stages",
      lines, slabs, shares, tokens, stages);
}

/// True if clusters of `chip` can multiply such blocks.
static bool hasClusters(const SDDMMShape &shape, const Chip &chip) {
  return chip.wgmmaRate != 0 && shape.elementBytes == 2 &&
         shape.getBlockRows() == SDDMMTile::clusterExtent &&
         shape.getBlockCols() == SDDMMTile::clusterExtent;
}

std::optional<SDDMMTile> SDDMMTile::choose(const SDDMMShape &shape,
                                           const Chip &chip, int64_t rows,
                                           int64_t shares) {
  TileSearch<SDDMMTile> search(chip, std::mem_fn(&SDDMMTile::describe));
  for (int64_t someShares : {1, 2, 4, 8})
    for (int64_t lines : {1, 2, 4, 8, 16, 32})
      for (int64_t rowBytes : {128, 64}) {
        // Lines beyond the last take room for nothing.
        if (search.isTooLarge(lines, shape.pattern.getGridRows()))
          continue;
        std::optional<SDDMMTile> tile;
        if (someShares == 1)
          tile = getTile(shape, chip, lines, rowBytes);
        else if (hasClusters(shape, chip))
          tile = getClusterTile(shape, chip, lines, rowBytes, someShares);
        if (!tile)
          continue;
        // What is given comes before what hides latencies.
        unsigned lacks =
            (shares != 0 && someShares != shares ? 4 : 0) +
            (rows != 0 && lines * shape.getBlockRows() != rows ? 2 : 0) +
            (tile->stages < wantedStages ? 1 : 0);
        // The times of clusters are not known to more than this.
        constexpr double leastGain = 1.05;
        search.consider(*tile, tile->getWork(shape),
                        {lacks, someShares != 1 ? leastGain : 1});
      }
  return search.best;
}

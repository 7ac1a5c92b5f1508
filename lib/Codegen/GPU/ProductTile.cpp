// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a product with a sparse weight is cut for blocks of threads and warps.

#include "ProductTile.h"
#include "LinePlan.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;

static constexpr int64_t numWarps = blockThreads / BlockBuilder::warpThreads;
/// Sums that a thread keeps in registers; with as many again for operands and
/// addresses, 256 threads use all of a multiprocessor.
static constexpr int64_t mostSums = 128;
/// How much more blocks a stage holds than a random pattern has in its slabs.
static constexpr double spareBlocks = 1.5;
/// Stages that hide the latency of copies; with 2, a copy has the time of one
/// stage.
static constexpr int64_t wantedStages = 3, leastStages = 2, mostStages = 4;

/// Of the positions along a line, the share at which one of `lines` has a
/// block.
static double getUnion(double density, int64_t lines) {
  return 1 - std::pow(1 - density, lines);
}

/// 16-byte pieces of a block.
static int64_t getPieces(const ProductShape &shape) {
  return shape.outBlock * shape.inBlock / copiedElements;
}

KernelWork ProductTile::getWork(const ProductShape &shape) const {
  double density = shape.getDensity();
  double share = getUnion(density, lines);
  double perSlab = lines * density / share;
  double groups = double(llvm::divideCeil(shape.numLines, lines));
  const Activations &x = shape.activations;
  double tiles = double(x.batches * llvm::divideCeil(x.tokens, tokens));
  KernelWork work;
  work.blocks = groups * tiles;
  work.warps = numWarps;

  // Of a block of threads.
  double chunkSlabs = std::min<double>(slabs, blocks / perSlab);
  double chunks = std::ceil(shape.length * share / chunkSlabs);
  double stored = double(shape.numLines) * shape.length * density / groups;
  double warpsAlong = double(tokens) / warpTokens;
  double fragments =
      double(shape.outBlock / fragmentRows) * (shape.inBlock / fragmentRows);
  double products = stored * fragments * tokens / fragmentCols;
  double loads = stored * warpsAlong * (shape.inBlock / fragmentRows) *
                 (shape.outBlock / fragmentRows + warpTokens / fragmentRows);
  double slabCopies = double(slabs * shape.inBlock * tokens) /
                      (copiedElements * BlockBuilder::warpThreads);
  double blockCopies =
      stored * double(getPieces(shape)) / BlockBuilder::warpThreads;
  double blockChecks =
      std::max<double>(1, double(blocks * getPieces(shape)) / blockThreads);
  // Instructions of PTX, counted in kernels that were emitted.
  constexpr double perBlock = 11, perChunk = 45, perSlabCopy = 3,
                   perBlockCopy = 3, perCheck = 2, perSum = 3;
  work.instructions = products + loads + perBlock * stored * warpsAlong +
                      chunks * (numWarps * (perChunk + perCheck * blockChecks) +
                                perSlabCopy * slabCopies) +
                      perBlockCopy * blockCopies + numWarps * perSum * mostSums;
  constexpr double copyBytes = 16.0 * BlockBuilder::warpThreads;
  double copied = copyBytes * (chunks * slabCopies + blockCopies);
  double stores = double(lines * shape.outBlock) * double(tokens) *
                  double(shape.outputBytes);
  work.longestWarp = work.instructions / numWarps;
  work.tensorFlops[static_cast<unsigned>(TensorType::Half)] =
      products * 2 * fragmentRows * fragmentCols * fragmentRows;
  work.sharedBytes = copyBytes * loads + copied + stores;
  work.l2Bytes = copied + stores;

  // Of all.
  work.instructions *= work.blocks;
  for (double &flops : work.tensorFlops)
    flops *= work.blocks;
  work.sharedBytes *= work.blocks;
  work.l2Bytes *= work.blocks;
  work.memoryBytes =
      double(x.batches) * double(x.tokens) *
          (double(shape.length * shape.inBlock) * elementBytes +
           double(shape.numLines * shape.outBlock) *
               double(shape.outputBytes)) +
      double(shape.slots * shape.outBlock * shape.inBlock) * elementBytes;
  return work;
}

/// The stages of `tile`, whose other sizes are known, and what one of them
/// holds; false if there are fewer than `least`.
static bool setStages(ProductTile &tile, const ProductShape &shape,
                      int64_t sharedBytes, int64_t least) {
  double density = shape.getDensity();
  int64_t blocksPerPass = std::max<int64_t>(1, blockThreads / getPieces(shape));
  for (int64_t features : {128, 64, 32}) {
    tile.slabs =
        std::clamp<int64_t>(features / shape.inBlock, 1, LinePlan::slabBits);
    double expected =
        tile.slabs * tile.lines * density / getUnion(density, tile.lines);
    int64_t wanted = std::max<int64_t>(
        tile.lines, std::min<int64_t>(std::ceil(spareBlocks * expected),
                                      tile.slabs * tile.lines));
    tile.blocks = llvm::alignTo(wanted, blocksPerPass);
    tile.stages =
        std::min(mostStages, sharedBytes / StageLayout(tile, shape).size);
    if (tile.stages >= least)
      return true;
  }
  return false;
}

std::optional<ProductTile> ProductTile::choose(const ProductShape &shape,
                                               const Chip &chip,
                                               int64_t outputs,
                                               int64_t tokens) {
  std::optional<ProductTile> best;
  double least = 0;
  int64_t most = llvm::PowerOf2Ceil(shape.activations.tokens);
  auto consider = [&](int64_t someOutputs, int64_t someTokens) {
    ProductTile tile;
    tile.lines = someOutputs / shape.outBlock;
    tile.tokens = someTokens;
    int64_t across = std::min(numWarps, tile.lines);
    // Lines beyond the last are computed for nothing, too.
    if (across == 0 || (best && tile.lines / 2 >= shape.numLines))
      return;
    tile.warpLines = tile.lines / across;
    tile.warpTokens = someTokens * across / numWarps;
    int64_t sums = tile.warpLines * shape.outBlock * tile.warpTokens /
                   BlockBuilder::warpThreads;
    if (tile.warpTokens < fragmentRows || sums > mostSums ||
        (!setStages(tile, shape, chip.sharedLimit, wantedStages) &&
         !setStages(tile, shape, chip.sharedLimit, leastStages)))
      return;
    double seconds = bound(tile.getWork(shape), chip).seconds;
    if (best && least <= seconds)
      return;
    best = tile;
    least = seconds;
  };
  for (int64_t someOutputs : {64, 128, 256, 512})
    for (int64_t someTokens : {256, 128, 64, 32}) {
      // Tokens beyond the last are computed for nothing.
      bool isWanted = tokens ? someTokens == tokens
                             : someTokens <= std::max<int64_t>(most, 32);
      if (isWanted && (outputs == 0 || someOutputs == outputs))
        consider(someOutputs, someTokens);
    }
  return best;
}

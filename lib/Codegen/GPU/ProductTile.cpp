// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a product with a sparse weight is cut for blocks of threads and warps.

#include "ProductTile.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;

static constexpr int64_t numWarps = blockThreads / BlockBuilder::warpThreads;
/// Sums that a thread keeps in registers; with as many again for operands and
/// addresses, 256 threads use all of a multiprocessor.
static constexpr int64_t mostSums = 128;
/// Tokens of a lane, without tensor cores.
static constexpr int64_t mostLaneTokens = 8;
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

std::optional<ProductShape> ProductShape::get(SpMMOp op,
                                              const Activations &activations,
                                              bool isOnTensorCores) {
  PatternType pattern = op.getPattern().getType();
  View view = *op.getLineView();
  ProductShape shape;
  shape.blockRows = pattern.getBlockRows();
  shape.blockCols = pattern.getBlockCols();
  shape.inputsAreRows = view == View::Columns;
  shape.activations = activations;
  shape.elementBytes =
      op.getX().getType().getElementType().getIntOrFloatBitWidth() / 8;
  shape.outputBytes =
      op.getY().getType().getElementType().getIntOrFloatBitWidth() / 8;
  shape.isOnTensorCores = isOnTensorCores;
  shape.slots = pattern.getSlots();
  View across = getOther(view);
  shape.outBlock = pattern.getBlockExtent(view);
  shape.inBlock = pattern.getBlockExtent(across);
  int64_t outputs = pattern.getNumLines(view) * shape.outBlock;
  int64_t inputs = pattern.getNumLines(across) * shape.inBlock;
  if (isOnTensorCores) {
    // Rows of `ldmatrix` have 8 elements.
    shape.outBlock = std::max(shape.outBlock, fragmentRows);
    shape.inBlock = std::max(shape.inBlock, copiedElements);
  }
  if (outputs % shape.outBlock || inputs % shape.inBlock)
    return std::nullopt;
  shape.numLines = outputs / shape.outBlock;
  shape.length = inputs / shape.inBlock;
  return shape;
}

double ProductShape::getDensity() const {
  double blocks = double(numLines * length * getParts());
  return getUnion(double(slots) / blocks, getParts());
}

LinePlan ProductTile::getPlan(const ProductShape &shape) const {
  int64_t packed = shape.getPackedLines();
  return {shape.numLines,
          shape.length,
          shape.slots,
          lines,
          slabs,
          blocks,
          packed,
          shape.getParts() / packed,
          shape.getGathered()};
}

namespace {
/// What a block of threads does, about, for each part of a launch that differs
/// with what multiplies.
struct BlockWork {
  double instructions, arithmetic, tensorFlops, sharedBytes;
};
} // namespace

static constexpr double copyBytes = copiedBytes * BlockBuilder::warpThreads;

/// What tensor cores do with `stored` blocks, of which `gaps` are zeros.
static BlockWork getFragmentWork(const ProductTile &tile,
                                 const ProductShape &shape, double stored,
                                 double gaps) {
  double warpsAlong = double(tile.tokens) / tile.warpTokens;
  double rows = double(shape.outBlock / fragmentRows);
  double steps = (stored + gaps) * double(shape.inBlock) / fragmentRows;
  double products = steps * rows * double(tile.tokens) / fragmentCols;
  double loads =
      steps * warpsAlong * (rows + double(tile.warpTokens) / fragmentRows);
  // Counted in kernels that were emitted: of a block, or of a step that gathers
  // blocks.
  double perBlock = shape.getGathered() == 1 ? 11 * stored : 18 * steps;
  return {products + loads + perBlock * warpsAlong, 0,
          products * 2 * fragmentRows * fragmentCols * fragmentRows,
          copyBytes * loads};
}

/// What lanes do with `stored` blocks.
static BlockWork getLaneWork(const ProductTile &tile, const ProductShape &shape,
                             double stored) {
  double warpsAlong = double(tile.tokens) / tile.warpTokens;
  double products = stored * double(shape.outBlock * shape.inBlock) *
                    double(tile.tokens) / BlockBuilder::warpThreads;
  double outputs = double(tile.getLaneOutputs(shape));
  double tokens = double(tile.getLaneTokens());
  // Of a load, a lane has 16 bytes at most; a wavefront brings 4 for each.
  double inputs = stored * double(shape.inBlock) * warpsAlong;
  double bytes = double(shape.elementBytes);
  double loads = inputs * (std::max(1.0, outputs * bytes / copiedBytes) +
                           std::max(1.0, tokens * bytes / copiedBytes));
  double wavefronts = inputs * (std::max(1.0, outputs * bytes / 4) +
                                std::max(1.0, tokens * bytes / 4));
  double conversions =
      shape.elementBytes == 4 ? 0 : inputs * (outputs + tokens);
  constexpr double perBlock = 12;
  return {products + loads + conversions + perBlock * stored * warpsAlong,
          products, 0, wavefronts * sharedBytes};
}

static double getSlabCopies(const ProductTile &tile,
                            const ProductShape &shape) {
  return double(tile.slabs * shape.inBlock * tile.tokens) * shape.elementBytes /
         copyBytes;
}

double ProductTile::getChunkInstructions(const ProductShape &shape) const {
  double blockChecks =
      std::max<double>(1, double(blocks * shape.getPieces()) / blockThreads);
  // Instructions of PTX, counted in kernels that were emitted.
  constexpr double perChunk = 45, perSlabCopy = 3, perCheck = 2;
  return numWarps * (perChunk + perCheck * blockChecks) +
         perSlabCopy * getSlabCopies(*this, shape);
}

double ProductTile::getChunks(const ProductShape &shape) const {
  double density = shape.getDensity(), share = getUnion(density, lines);
  double perSlab = lines * density / share;
  double chunkSlabs = std::min<double>(slabs, blocks / perSlab);
  return std::ceil(shape.length * share / chunkSlabs);
}

LinePlan ProductTile::getCutPlan(const ProductShape &shape,
                                 const Chip &chip) const {
  // Of a warp: instructions of a chunk, and of a block.
  double ofChunk = getChunkInstructions(shape) / numWarps;
  BlockWork block =
      shape.isOnTensorCores
          ? getFragmentWork(*this, shape, /*stored=*/1, /*gaps=*/0)
          : getLaneWork(*this, shape, /*stored=*/1);
  double ofBlock = block.instructions * double(warpTokens) / double(tokens);
  double density = shape.getDensity();
  double all = double(shape.numLines * shape.length) * density;
  LinePlan plan = getPlan(shape);
  plan.warpLines = warpLines;
  // Whole numbers; the pattern's blocks are counted, of which several may be
  // in one.
  plan.chunkCost = 8;
  double ofStored = ofBlock * all / double(std::max<int64_t>(1, shape.slots));
  plan.blockCost = std::max<int64_t>(
      1, std::lround(double(plan.chunkCost) * ofStored / ofChunk));
  auto getCost = [&](double chunks, double blocks, double ofWarp) {
    return chunks * ofChunk + std::max(blocks / issueSlots, ofWarp) * ofBlock;
  };
  double ofLine = double(shape.length) * double(warpLines);
  double mean =
      getCost(getChunks(shape), double(shape.length * lines) * density,
              ofLine * density);
  double stored = std::min(double(shape.length * lines), double(shape.slots));
  double full = getCost(double(plan.getFullChunks()), stored,
                        std::min(ofLine, double(shape.slots)));
  plan.cutLongGroups(chip, getTokenTiles(shape), full / mean);
  return plan;
}

KernelWork ProductTile::getWork(const ProductShape &shape) const {
  double density = shape.getDensity();
  double groups = double(llvm::divideCeil(shape.numLines, lines));
  const Activations &x = shape.activations;
  KernelWork work;
  work.blocks = groups * double(getTokenTiles(shape));
  work.warps = numWarps;

  // Of a block of threads.
  double chunks = getChunks(shape);
  double stored = double(shape.numLines) * shape.length * density / groups;
  double gaps = double(shape.getGathered() - 1) * chunks * lines / 2;
  BlockWork products = shape.isOnTensorCores
                           ? getFragmentWork(*this, shape, stored, gaps)
                           : getLaneWork(*this, shape, stored);
  double blockCopies =
      stored * double(shape.getPieces()) / BlockBuilder::warpThreads;
  // Instructions of PTX, counted in kernels that were emitted.
  constexpr double perBlockCopy = 3, perSum = 3;
  work.instructions = products.instructions +
                      chunks * getChunkInstructions(shape) +
                      perBlockCopy * blockCopies + numWarps * perSum * mostSums;
  double slabBytes = copyBytes * chunks * getSlabCopies(*this, shape);
  double partBytes =
      double(shape.blockRows * shape.blockCols) * double(shape.elementBytes);
  double stores = double(lines * shape.outBlock) * double(tokens) *
                  double(shape.outputBytes);
  work.longestWarp = work.instructions / numWarps;
  work.arithmetic[static_cast<unsigned>(Unit::Float)] = products.arithmetic;
  work.tensorFlops[static_cast<unsigned>(TensorType::Half)] =
      products.tensorFlops;
  work.sharedBytes = products.sharedBytes + slabBytes +
                     stored * shape.getParts() * partBytes + stores;
  work.l2Bytes = slabBytes + double(shape.slots) / groups * partBytes + stores;

  // Of all.
  work.instructions *= work.blocks;
  for (double &instructions : work.arithmetic)
    instructions *= work.blocks;
  for (double &flops : work.tensorFlops)
    flops *= work.blocks;
  work.sharedBytes *= work.blocks;
  work.l2Bytes *= work.blocks;
  work.memoryBytes =
      double(x.batches) * double(x.tokens) *
          (double(shape.length * shape.inBlock) * shape.elementBytes +
           double(shape.numLines * shape.outBlock) *
               double(shape.outputBytes)) +
      double(shape.slots) * partBytes;
  return work;
}

/// The stages of `tile`, whose other sizes are known, and what one of them
/// holds; false if there are fewer than `least`.
static bool setStages(ProductTile &tile, const ProductShape &shape,
                      int64_t sharedBytes, int64_t least) {
  sharedBytes -= BlockBuilder::sharedSymbolBytes;
  double density = shape.getDensity();
  int64_t blocksPerPass =
      std::max<int64_t>(1, blockThreads / shape.getPieces());
  for (int64_t features : {128, 64, 32}) {
    tile.slabs =
        std::clamp<int64_t>(features / shape.inBlock, 1, LinePlan::slabBits);
    double expected =
        tile.slabs * tile.lines * density / getUnion(density, tile.lines);
    int64_t wanted = std::max<int64_t>(
        tile.lines, std::min<int64_t>(std::ceil(spareBlocks * expected),
                                      tile.slabs * tile.lines));
    wanted += (shape.getGathered() - 1) * tile.lines;
    tile.blocks = llvm::alignTo(wanted, blocksPerPass);
    StageLayout layout(tile, shape);
    for (tile.stages = mostStages; tile.stages >= least; --tile.stages)
      if (layout.getSharedBytes(tile, shape) <= sharedBytes)
        return true;
  }
  return false;
}

/// The tile of so many outputs and tokens a block of threads, if there is one.
static std::optional<ProductTile> getTile(const ProductShape &shape,
                                          const Chip &chip, int64_t outputs,
                                          int64_t tokens, int64_t groups) {
  ProductTile tile;
  tile.lines = outputs / shape.outBlock;
  tile.tokens = tokens;
  tile.groups = groups;
  int64_t across = std::min(numWarps, tile.lines);
  // A plan has a bit for each line.
  if (across == 0 || tile.lines > 32)
    return std::nullopt;
  tile.warpLines = tile.lines / across;
  tile.warpTokens = tokens * across / numWarps;
  bool isWhole = shape.isOnTensorCores
                     ? tile.warpTokens >= fragmentRows
                     : shape.outBlock % groups == 0 &&
                           tile.getLaneTokens() >= 1 &&
                           tile.getLaneTokens() <= mostLaneTokens;
  if (!isWhole || tile.getSums(shape) > mostSums ||
      (!setStages(tile, shape, chip.sharedLimit, wantedStages) &&
       !setStages(tile, shape, chip.sharedLimit, leastStages)) ||
      !tile.getPlan(shape).fits(chip.sharedLimit))
    return std::nullopt;
  return tile;
}

std::optional<ProductTile> ProductTile::choose(const ProductShape &shape,
                                               const Chip &chip,
                                               int64_t outputs,
                                               int64_t tokens) {
  std::optional<ProductTile> best;
  double least = 0;
  int64_t most = llvm::PowerOf2Ceil(shape.activations.tokens);
  auto consider = [&](int64_t someOutputs, int64_t someTokens, int64_t groups) {
    auto tile = getTile(shape, chip, someOutputs, someTokens, groups);
    // Lines beyond the last are computed for nothing, too.
    if (!tile || (best && tile->lines / 2 >= shape.numLines))
      return;
    double seconds = bound(tile->getWork(shape), chip).seconds;
    if (best && least <= seconds)
      return;
    best = tile;
    least = seconds;
  };
  for (int64_t someOutputs : {32, 64, 128, 256, 512})
    for (int64_t someTokens : {256, 128, 64, 32}) {
      // Tokens beyond the last are computed for nothing.
      bool isWanted = tokens ? someTokens == tokens
                             : someTokens <= std::max<int64_t>(most, 32);
      if (!isWanted || (outputs && someOutputs != outputs))
        continue;
      if (shape.isOnTensorCores && someOutputs >= 64)
        consider(someOutputs, someTokens, 1);
      for (int64_t groups : {1, 2, 4})
        if (!shape.isOnTensorCores)
          consider(someOutputs, someTokens, groups);
    }
  return best;
}

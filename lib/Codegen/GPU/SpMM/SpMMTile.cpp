// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a product with a sparse weight is cut for thread blocks and warps.

#include "SpMMTile.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "bsr/Codegen/GPU/Core/TileSearch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// Tokens of a lane, without tensor cores.
static constexpr int64_t mostLaneTokens = 8;
/// How much more blocks a stage holds than a random pattern has in its slabs.
static constexpr double spareBlocks = 1.5;
/// Stages that hide the latency of copies; with 2, a copy has the time of one
/// stage. Where thread blocks of a cluster wait for each other, more of
/// them let each go at its own pace.
static constexpr int64_t wantedStages = 3, leastStages = 2, mostStages = 4,
                         mostBoxStages = 8;

std::optional<SpMMShape> SpMMShape::get(const BlockProduct &product,
                                        bool isOnTensorCores) {
  PatternType pattern = product.pattern;
  View view = *cast<SpMMOp>(product.op).getLineView();
  SpMMShape shape;
  shape.blockRows = pattern.getBlockRows();
  shape.blockCols = pattern.getBlockCols();
  shape.inputsAreRows = view == View::Columns;
  shape.activations = product.activations.front();
  shape.elementBytes = product.getElementBytes();
  shape.outputBytes = product.getResultBytes();
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

double SpMMShape::getDensity() const {
  double blocks = double(numLines * length * getPackedBlocks());
  return getUnion(double(slots) / blocks, getPackedBlocks());
}

double SpMMShape::getMemoryBytes() const {
  double inputs = double(length * inBlock),
         outputs = double(numLines * outBlock);
  return double(activations.batches) * double(activations.tokens) *
             (inputs * elementBytes + outputs * double(outputBytes)) +
         double(slots) * getStoredBytes();
}

StageLayout::StageLayout(const SpMMTile &tile, const SpMMShape &shape) {
  bool areBoxes = tile.shareOutputs != 0;
  auto getPitchOf = [&](int64_t length, bool isInnerLast) {
    return shape.isPadded() && !areBoxes
               ? WarpMultiplier::getPitch(length, shape.elementBytes,
                                          isInnerLast)
               : length * shape.elementBytes;
  };
  slabPitch =
      areBoxes ? boxBytes : getPitchOf(tile.tokens, /*isInnerLast=*/false);
  int64_t boxes = areBoxes ? tile.tokens / boxTokens : 1;
  slab = boxes * shape.inBlock * slabPitch;
  blockPitch = getPitchOf(shape.getCols(), !shape.inputsAreRows);
  block = shape.getRows() * blockPitch;
  blocks = tile.slabs * slab;
  int64_t alignment = areBoxes ? swizzlePeriod : copiedBytes;
  size = llvm::alignTo(blocks + tile.blocks * block, alignment);
  zeros = tile.stages * size;
  sharedBytes = areBoxes ? BarrierPipeline::getSharedBytes(tile.stages, size)
                         : zeros + (shape.getGathered() == 1 ? 0 : slabPitch);
}

SpMMGrid SpMMTile::getGrid(const SpMMShape &shape) const {
  SpMMGrid grid;
  grid.areBoxes = shareOutputs != 0;
  // Those that copy are a warpgroup of their own.
  grid.threads = blockThreads + (grid.areBoxes ? warpgroupThreads : 0);
  grid.sharedBytes = StageLayout(*this, shape).sharedBytes;
  grid.tokens = tokens;
  grid.warpTokens = warpTokens;
  grid.cluster = {getShares(), 1};
  if (!shape.isOnTensorCores)
    grid.storedLength =
        std::min(getLaneSide(shape), copiedBytes / shape.outputBytes);
  return grid;
}

SpMMPlan SpMMTile::getPlan(const SpMMShape &shape) const {
  int64_t packed = shape.getPackedLines();
  return {shape.numLines,
          shape.length,
          shape.slots,
          getShares() * lines,
          slabs,
          blocks,
          packed,
          shape.getPackedBlocks() / packed,
          shape.getGathered()};
}

namespace {
/// What a thread block does, about, for each part of a launch that differs
/// with what multiplies.
struct BlockWork {
  double instructions, arithmetic, tensorFlops, sharedBytes;
};
} // namespace

static constexpr double copyBytes = copiedBytes * BlockBuilder::warpThreads;

/// What tensor cores do with `stored` blocks, of which `gaps` are zeros, of
/// `chunks` chunks.
static BlockWork getFragmentWork(const SpMMTile &tile, const SpMMShape &shape,
                                 double stored, double gaps, double chunks) {
  double warpsAlong = double(tile.tokens) / tile.warpTokens;
  double rows = double(shape.outBlock / fragmentRows);
  double steps = (stored + gaps) * double(shape.inBlock) / fragmentRows;
  double products = steps * rows * double(tile.tokens) / fragmentCols;
  // Lines that share activations load them once.
  double lines = double(tile.warpLines), density = shape.getDensity();
  double loaded = tile.areActivationsShared(shape)
                      ? getUnion(density, lines) / (lines * density)
                      : 1;
  double across = loaded * double(tile.warpTokens) / fragmentRows;
  double units = steps * warpsAlong * (rows + across);
  // A unit of f32 is two fragments, whose words are loaded one by one, where
  // `ldmatrix` cannot transpose them, and rounded.
  bool isTF32 = shape.elementBytes == 4;
  constexpr double unitWords = 8;
  double transposed = shape.inputsAreRows ? units : steps * warpsAlong * across;
  double loads =
      isTF32 ? transposed * unitWords + (units - transposed) * 2 : units;
  double roundings = isTF32 ? units * unitWords : 0;
  // Counted in kernels that were emitted, without what boxes need: of a block,
  // of a slab that a line is asked for, or of a step that gathers blocks.
  constexpr double perListed = 11, perScanned = 3, perSlab = 3, perStep = 18;
  double overhead = perListed * stored;
  if (shape.getGathered() != 1)
    overhead = perStep * steps;
  else if (tile.isScanned)
    overhead = perScanned * stored +
               perSlab * chunks * double(tile.slabs) * double(tile.lines);
  return {products * (isTF32 ? 2 : 1) + loads + roundings +
              overhead * warpsAlong,
          overhead * warpsAlong,
          products * 2 * fragmentRows * fragmentCols * fragmentRows,
          copyBytes * units * (isTF32 ? 2 : 1)};
}

/// What lanes do with `stored` blocks.
static BlockWork getLaneWork(const SpMMTile &tile, const SpMMShape &shape,
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

static double getSlabBytes(const SpMMTile &tile, const SpMMShape &shape) {
  return double(tile.slabs * shape.inBlock * tile.tokens) *
         double(shape.elementBytes);
}

double SpMMTile::getChunkInstructions(const SpMMShape &shape) const {
  // Instructions of PTX, counted in kernels that were emitted.
  constexpr double perChunk = 45, perSlabCopy = 3, perCheck = 2,
                   perBoxChunk = 40;
  if (shareOutputs != 0)
    return blockWarps * perBoxChunk;
  double blockChecks =
      std::max<double>(1, double(blocks * shape.getPieces()) / blockThreads);
  return blockWarps * (perChunk + perCheck * blockChecks) +
         perSlabCopy * getSlabBytes(*this, shape) / copyBytes;
}

double SpMMTile::getChunks(const SpMMShape &shape) const {
  double density = shape.getDensity();
  double together = double(getShares() * lines);
  double share = getUnion(density, together);
  double perSlab = together * density / share;
  double chunkSlabs = std::min<double>(slabs, blocks / perSlab);
  return std::ceil(shape.length * share / chunkSlabs);
}

SpMMPlan SpMMTile::getCutPlan(const SpMMShape &shape, const Chip &chip,
                              bool isGiven) const {
  auto getProductWork = [&](double stored, double chunks) {
    return shape.isOnTensorCores
               ? getFragmentWork(*this, shape, stored, /*gaps=*/0, chunks)
               : getLaneWork(*this, shape, stored);
  };
  // Of a warp: instructions of a chunk, and of a block.
  double ofChunk = (getChunkInstructions(shape) +
                    getProductWork(/*stored=*/0, /*chunks=*/1).instructions) /
                   blockWarps;
  BlockWork block = getProductWork(/*stored=*/1, /*chunks=*/0);
  double ofBlock = block.instructions * double(warpTokens) / double(tokens);
  double density = shape.getDensity();
  double all = double(shape.numLines * shape.length) * density;
  SpMMPlan plan = getPlan(shape);
  plan.warpLines = warpLines;
  plan.warpsAtOnce *= getShares();
  // Whole numbers; the pattern's blocks are counted, of which several may be
  // in one.
  plan.chunkCost = 8;
  double ofStored = ofBlock * all / double(std::max<int64_t>(1, shape.slots));
  plan.blockCost = std::max<int64_t>(
      1, std::lround(double(plan.chunkCost) * ofStored / ofChunk));
  auto getCost = [&](double chunks, double blocks, double ofWarp) {
    double fair = blocks / double(plan.warpsAtOnce);
    return chunks * ofChunk + std::max(fair, ofWarp) * ofBlock;
  };
  double ofLine = double(shape.length) * double(warpLines);
  double mean =
      getCost(getChunks(shape), double(shape.length * plan.lines) * density,
              ofLine * density);
  double stored =
      std::min(double(shape.length * plan.lines), double(shape.slots));
  double full = getCost(double(plan.getFullChunks()), stored,
                        std::min(ofLine, double(shape.slots)));
  KernelWork work = getWork(shape);
  plan.cutLongGroups(chip, getShares() * getTokenTiles(shape), full / mean,
                     isGiven ? nullptr : &work);
  return plan;
}

std::string SpMMTile::describe(const SpMMShape &shape) const {
  return llvm::formatv(
      "{0}x{1} outputs and tokens, a warp {2}x{3} on {4}, "
      "{5} stages",
      lines * shape.outBlock, tokens, warpLines * shape.outBlock, warpTokens,
      shape.isOnTensorCores ? "tensor cores" : "lanes", stages);
}

KernelWork SpMMTile::getWork(const SpMMShape &shape) const {
  double density = shape.getDensity();
  // Of the positions, those of the cluster and of the thread block.
  double share = getUnion(density, getShares() * lines);
  double ownShare = getUnion(density, lines);
  double groups =
      double(llvm::divideCeil(shape.numLines, getShares() * lines)) *
      double(getShares());
  KernelWork work;
  work.blocks = groups * double(getTokenTiles(shape));
  work.warps = blockWarps;

  // Of a thread block.
  double chunks = getChunks(shape);
  double stored = double(shape.numLines) * shape.length * density / groups;
  double gaps = double(shape.getGathered() - 1) * chunks * lines / 2;
  BlockWork products = shape.isOnTensorCores
                           ? getFragmentWork(*this, shape, stored, gaps, chunks)
                           : getLaneWork(*this, shape, stored);
  // Instructions of PTX, counted in kernels that were emitted.
  constexpr double perSum = 3, perBlockCopy = 3;
  double blockCopies =
      stored * double(shape.getPieces()) / BlockBuilder::warpThreads;
  work.instructions = products.instructions + blockWarps * perSum * mostSums;
  work.longestWarp = work.instructions / blockWarps;
  double consumers = chunks * getChunkInstructions(shape), producer = 0;
  if (shareOutputs != 0) {
    constexpr double perCopyChunk = 150;
    producer = chunks * perCopyChunk;
  } else {
    consumers += perBlockCopy * blockCopies;
  }
  work.instructions += consumers + producer;
  work.longestWarp += std::max(consumers / blockWarps, producer);
  double copied = chunks * getSlabBytes(*this, shape);
  double blockBytes = shape.getStoredBytes();
  double stores = double(lines * shape.outBlock) * double(tokens) *
                  double(shape.outputBytes);
  Unit unit = shape.isOnTensorCores ? Unit::Integer : Unit::Float;
  work.arithmetic[static_cast<unsigned>(unit)] = products.arithmetic;
  TensorType type =
      shape.elementBytes == 4 ? TensorType::TF32 : TensorType::Half;
  work.tensorFlops[static_cast<unsigned>(type)] = products.tensorFlops;
  work.sharedBytes = products.sharedBytes + copied * ownShare / share +
                     stored * shape.getPackedBlocks() * blockBytes + stores;
  work.l2Bytes = copied / double(getShares()) +
                 double(shape.slots) / groups * blockBytes + stores;
  work.multiplyByBlocks();
  work.memoryBytes = shape.getMemoryBytes();
  return work;
}

/// The stages of `tile`, whose other sizes are known, and what one of them
/// holds; false if there are fewer than `least`.
static bool setStages(SpMMTile &tile, const SpMMShape &shape,
                      int64_t sharedBytes, int64_t least) {
  sharedBytes -= BlockBuilder::sharedSymbolBytes;
  double density = shape.getDensity();
  int64_t lines = tile.getShares() * tile.lines;
  int64_t blocksPerPass =
      std::max<int64_t>(1, blockThreads / shape.getPieces());
  // The more there are, the fewer chunks; where all threads copy, powers of 2.
  constexpr int64_t mostFeatures = 160;
  for (int64_t features :
       {mostFeatures, int64_t(128), int64_t(64), int64_t(32)}) {
    if (features == mostFeatures && tile.shareOutputs == 0)
      continue;
    tile.slabs =
        std::clamp<int64_t>(features / shape.inBlock, 1, SpMMPlan::slabBits);
    // Thread blocks that share activations copy equal parts of them.
    if (tile.slabs * tile.tokens / StageLayout::boxTokens % tile.getShares())
      continue;
    double expected =
        double(tile.slabs * lines) * density / getUnion(density, lines);
    int64_t wanted = std::max<int64_t>(
        lines, std::min<int64_t>(std::ceil(spareBlocks * expected),
                                 tile.slabs * lines));
    wanted += (shape.getGathered() - 1) * lines;
    tile.blocks = llvm::alignTo(wanted, blocksPerPass);
    tile.stages = tile.shareOutputs != 0 ? mostBoxStages : mostStages;
    for (; tile.stages >= least; --tile.stages)
      if (StageLayout(tile, shape).sharedBytes <= sharedBytes)
        return true;
  }
  return false;
}

/// The tile of so many outputs and tokens a thread block, if there is one.
static std::optional<SpMMTile> getTile(const SpMMShape &shape, const Chip &chip,
                                       int64_t outputs, int64_t tokens,
                                       int64_t groups, int64_t shareOutputs,
                                       bool isScanned) {
  SpMMTile tile;
  tile.lines = outputs / shape.outBlock;
  tile.tokens = tokens;
  tile.groups = groups;
  tile.shareOutputs = shareOutputs;
  tile.isScanned = isScanned;
  int64_t across = std::min(blockWarps, tile.lines);
  // A plan has a bit for each line.
  if (across == 0 || tile.getShares() * tile.lines > 32)
    return std::nullopt;
  tile.warpLines = tile.lines / across;
  tile.warpTokens = tokens * across / blockWarps;
  // A warp's tokens are those of whole boxes.
  int64_t leastTokens =
      shareOutputs != 0 ? StageLayout::boxTokens : fragmentRows;
  bool isWhole = shape.isOnTensorCores
                     ? tile.warpTokens >= leastTokens
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

std::optional<SpMMTile> SpMMTile::choose(const SpMMShape &shape,
                                         const Chip &chip, int64_t outputs,
                                         int64_t tokens, int64_t shareOutputs) {
  TileSearch<SpMMTile> search(
      chip, [&](const SpMMTile &tile) { return tile.describe(shape); });
  int64_t most = llvm::PowerOf2Ceil(shape.activations.tokens);
  // Tensor copies bring blocks as they are, and their rows of 32 bytes or more.
  bool areBoxes = chip.wgmmaRate != 0 && shape.isOnTensorCores &&
                  shape.elementBytes == elementBytes &&
                  shape.getPackedBlocks() == 1 && shape.getGathered() == 1;
  auto consider = [&](int64_t someOutputs, int64_t someTokens, int64_t groups,
                      int64_t shares, bool isScanned) {
    auto tile = getTile(shape, chip, someOutputs, someTokens, groups, shares,
                        isScanned);
    // Lines beyond the last are computed for nothing, too.
    if (!tile ||
        search.isTooLarge(tile->getShares() * tile->lines, shape.numLines))
      return;
    KernelWork work = tile->getWork(shape);
    search.consider(*tile, work,
                    {/*lacks=*/0, /*factor=*/1, /*effort=*/work.instructions});
  };
  for (int64_t someOutputs : {32, 64, 128, 256, 512})
    for (int64_t someTokens : {256, 128, 64, 32}) {
      // Tokens beyond the last are computed for nothing.
      bool isWanted = tokens ? someTokens == tokens
                             : someTokens <= std::max<int64_t>(most, 32);
      if (!isWanted || (outputs && someOutputs != outputs))
        continue;
      for (int64_t shares : {0, 1, 2, 4})
        if (shape.isOnTensorCores && someOutputs >= 64 &&
            (!areBoxes ? shares == 0
                       : shareOutputs == 0 || shares == shareOutputs))
          for (bool isScanned : {false, true})
            if (!isScanned || shape.getGathered() == 1)
              consider(someOutputs, someTokens, /*groups=*/1, shares,
                       isScanned);
      for (int64_t groups : {1, 2, 4})
        if (!shape.isOnTensorCores)
          consider(someOutputs, someTokens, groups, /*shares=*/0,
                   /*isScanned=*/false);
    }
  return search.best;
}

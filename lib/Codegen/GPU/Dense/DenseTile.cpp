// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles of dense products: their sizes, what they take, and the choice.

#include "DenseTile.h"
#include "BlockNorms.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "bsr/Codegen/GPU/Core/TileSearch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

DenseTile DenseTile::get(
    const DenseContraction &operands, int64_t rows, int64_t cols,
    bool isSwizzled,
    llvm::function_ref<int64_t(int64_t length, bool isInnerLast)> getPitch) {
  auto getSide = [&](const DenseContraction::Side &side, int64_t tile) {
    return Side{tile,
                getPitch(side.isInnerLast ? innerTile : tile, side.isInnerLast),
                isSwizzled && side.isInnerLast};
  };
  DenseTile result;
  result.left = getSide(operands.left, rows);
  result.right = getSide(operands.right, cols);
  return result;
}

std::string DenseTile::describe() const {
  return llvm::formatv("{0}x{1} sums, {2} slices, {3} stages", left.tile,
                       right.tile, slices, stages);
}

int64_t DenseTile::getMostSlices(const DenseContraction &operands,
                                 const Chip &chip) const {
  if (operands.norms) // A norm is of whole sums.
    return 1;
  int64_t blocks = operands.batch.size * getNumTiles(operands);
  // A slice is of 8 stages at least.
  return std::clamp<int64_t>(
      getBusyBlocks(chip) / blocks, 1,
      std::max<int64_t>(1, operands.inner.size / (8 * innerTile)));
}

void DenseTile::setSlices(const DenseContraction &operands, int64_t count) {
  sliceLength =
      llvm::alignTo(llvm::divideCeil(operands.inner.size, count), innerTile);
  slices = llvm::divideCeil(operands.inner.size, sliceLength);
}

SmallVector<KernelWork, 2>
DenseTile::getLaunches(const DenseContraction &operands,
                       KernelWork products) const {
  constexpr double sumBytes = 4;
  KernelWork &work = products;
  work.blocks = double(getNumTiles(operands) * operands.batch.size * slices);
  work.warps = double(blockWarps);
  double copied = double(sliceLength * (left.tile + right.tile) *
                         operands.getElementBytes());
  double stored = double(left.tile * right.tile) * sumBytes;
  work.longestWarp = work.instructions / work.warps;
  work.sharedBytes += copied + stored;
  work.l2Bytes = copied + stored;
  work.multiplyByBlocks();
  if (slices == 1)
    return {work};
  double count = double(operands.getNumSums());
  // A thread adds two sums of each slice.
  constexpr double perThread = 20, perSlice = 3;
  KernelWork sum;
  sum.warps = double(blockWarps);
  sum.blocks = std::ceil(count / 2 / double(blockThreads));
  sum.longestWarp = perThread + perSlice * double(slices);
  sum.instructions = sum.blocks * sum.warps * sum.longestWarp;
  sum.l2Bytes = sum.sharedBytes = double(slices + 1) * count * sumBytes;
  return {work, sum};
}

bool DenseTile::setStages(const DenseContraction &operands, const Chip &chip) {
  constexpr int64_t leastStages = 2, mostStages = 6;
  stages = CopyPipeline::getStages(chip.sharedLimit, getStageBytes(operands),
                                   mostStages);
  return stages >= leastStages &&
         (!operands.norms ||
          BlockNorms::getSharedBytes(left.tile, right.tile) <=
              chip.sharedLimit - BlockBuilder::sharedSymbolBytes);
}

//===----------------------------------------------------------------------===//
// Tiles of tensor cores
//===----------------------------------------------------------------------===//

/// What the launches of `tile` do, about.
static SmallVector<KernelWork, 2>
getWarpLaunches(const DenseContraction &operands, const DenseTile &tile) {
  // Of a thread block.
  KernelWork work;
  double length = double(tile.sliceLength);
  double flops = 2.0 * double(tile.left.tile * tile.right.tile) * length;
  int64_t bytes = operands.getElementBytes();
  bool isTF32 = bytes == 4;
  bsr::gpu::TensorType type =
      isTF32 ? bsr::gpu::TensorType::TF32 : bsr::gpu::TensorType::Half;
  work.tensorFlops[static_cast<unsigned>(type)] = flops;
  // Instructions of PTX for an mma of 16 inner numbers, and for a stage,
  // counted in kernels that were emitted.
  double perProduct = isTF32 ? 8 : 2;
  constexpr double perStage = 60;
  work.instructions =
      perProduct * flops / (2 * fragmentRows * fragmentCols * fragmentRows) +
      perStage * double(blockWarps) * length / DenseTile::innerTile;
  // Warps along the columns load the same rows, and the other way round.
  work.sharedBytes = length * double(bytes) *
                     double(tile.left.tile * DenseTile::colWarps +
                            tile.right.tile * DenseTile::rowWarps);
  return tile.getLaunches(operands, work);
}

std::optional<DenseTile>
bsr::gpu::chooseWarpTile(const DenseContraction &operands, GPUAttr target) {
  // Sums are stored in pairs.
  if (!isMultiplied(operands.type, target.getTf32()) ||
      (!operands.norms && operands.getType().getShape().back() % 2))
    return std::nullopt;
  DenseTile tile =
      DenseTile::get(operands, operands.rows.size <= 64 ? 64 : 128,
                     operands.cols.size <= 64 ? 64 : 128, /*isSwizzled=*/false,
                     [&](int64_t length, bool isInnerLast) {
                       return WarpMultiplier::getPitch(
                           length, operands.getElementBytes(), isInnerLast);
                     });
  const Chip &chip = *findChip(target.getChip());
  TileSearch<DenseTile> search(chip, std::mem_fn(&DenseTile::describe));
  for (int64_t slices = tile.getMostSlices(operands, chip); slices >= 1;
       --slices) {
    tile.setSlices(operands, slices);
    if (tile.setStages(operands, chip))
      search.consider(tile, getWarpLaunches(operands, tile));
  }
  return search.best;
}

//===----------------------------------------------------------------------===//
// Tiles of arithmetic units
//===----------------------------------------------------------------------===//

static constexpr int64_t floatBytes = 4;

/// What the launches of `tile` do, about.
static SmallVector<KernelWork, 2>
getLaneLaunches(const DenseContraction &operands, const DenseTile &tile) {
  // Of a thread block.
  KernelWork work;
  double length = double(tile.sliceLength), warps = double(blockWarps);
  double sums = double(tile.left.tile * tile.right.tile);
  double products = sums * length / BlockBuilder::warpThreads;
  double laneRows = double(tile.getWarpRows()) / DenseTile::rowLanes;
  double laneCols = double(tile.getWarpCols()) / DenseTile::colLanes;
  double loads =
      warps * length * (laneRows + laneCols) / DenseTile::laneNumbers;
  double stages = length / DenseTile::innerTile;
  double copies = 0;
  for (auto [side, ofTile] : {std::pair(&operands.left, &tile.left),
                              std::pair(&operands.right, &tile.right)})
    copies += double(ofTile->tile) * length /
              double(side->copied * BlockBuilder::warpThreads);
  // Counted in kernels that were emitted.
  constexpr double perStage = 60, perCopy = 3;
  work.instructions =
      products + loads + copies * perCopy + warps * perStage * stages;
  work.arithmetic[static_cast<unsigned>(Unit::Float)] = products;
  work.sharedBytes = loads * copiedBytes * BlockBuilder::warpThreads;
  return tile.getLaunches(operands, work);
}

/// What kernels do in which an element of the result is a thread's, about.
static KernelWork getPlainWork(const DenseContraction &operands) {
  KernelWork work;
  double results = double(operands.getNumSums());
  double products =
      results * double(operands.inner.size) / BlockBuilder::warpThreads;
  constexpr double threads = 128;
  work.blocks = std::ceil(results / threads);
  work.warps = threads / BlockBuilder::warpThreads;
  // Counted in kernels that were emitted: a product is two loads, of which one
  // brings an element for each lane, and the other one the same for all.
  constexpr double perProduct = 4, sectorBytes = 32;
  work.instructions = products * perProduct;
  work.arithmetic[static_cast<unsigned>(Unit::Float)] = products;
  double bytes =
      products * (BlockBuilder::warpThreads * floatBytes + sectorBytes);
  work.sharedBytes = bytes;
  work.l2Bytes = bytes;
  return work;
}

/// The tile that takes least time on the chip, of those of `rows` by `cols` if
/// these are not 0; none if none fits.
static std::optional<DenseTile> findLaneTile(const DenseContraction &operands,
                                             const Chip &chip, int64_t rows,
                                             int64_t cols) {
  constexpr std::pair<int64_t, int64_t> sizes[] = {
      {128, 256}, {128, 128}, {64, 128}, {64, 64}};
  TileSearch<DenseTile> search(chip, std::mem_fn(&DenseTile::describe));
  for (auto [someRows, someCols] : sizes) {
    if ((rows != 0 && someRows != rows) || (cols != 0 && someCols != cols))
      continue;
    DenseTile tile = DenseTile::get(
        operands, someRows, someCols, /*isSwizzled=*/true,
        [](int64_t length, bool) { return length * floatBytes; });
    for (int64_t slices = tile.getMostSlices(operands, chip); slices >= 1;
         --slices) {
      tile.setSlices(operands, slices);
      if (tile.setStages(operands, chip))
        search.consider(tile, getLaneLaunches(operands, tile));
    }
  }
  return search.best;
}

std::optional<DenseTile>
bsr::gpu::chooseLaneTile(const DenseContraction &operands, GPUAttr target) {
  if (!operands.type.isF32())
    return std::nullopt;
  const Chip &chip = *findChip(target.getChip());
  int64_t rows = target.getTileOutputs(), cols = target.getTileTokens();
  auto tile = findLaneTile(operands, chip, rows, cols);
  bool isGiven = tile && rows != 0 && cols != 0;
  if (!tile)
    tile = findLaneTile(operands, chip, /*rows=*/0, /*cols=*/0);
  if (tile && !isGiven &&
      bound(getPlainWork(operands), chip).seconds <=
          getSeconds(getLaneLaunches(operands, *tile), chip))
    return std::nullopt;
  return tile;
}

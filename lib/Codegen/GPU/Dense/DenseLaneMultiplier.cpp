// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products on arithmetic units.
//
// The lanes of a warp are 4 by 8, along rows and columns; a lane keeps the sums
// of up to 8 rows and 16 columns in registers, which are four neighbours and
// then, behind those of the other lanes, four more. It takes 4 inner numbers at
// a time, of each operand in loads of 16 bytes: of four neighbours, or, where
// inner numbers lie side by side, of those of one row or column.

#include "DenseMultiplier.h"
#include "bsr/Codegen/GPU/Core/TileSearch.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// Lanes of a warp along rows and along columns.
static constexpr int64_t rowLanes = 4, colLanes = 8;
/// Numbers of a load, which are neighbours.
static constexpr int64_t four = 4;
static constexpr int64_t floatBytes = 4;

/// What the launches of `tile` do, about.
static SmallVector<KernelWork, 2> getLaunches(const DenseOperands &operands,
                                              const DenseTile &tile) {
  // Of a thread block.
  KernelWork work;
  double length = double(tile.sliceLength), warps = double(blockWarps);
  double sums = double(tile.left.tile * tile.right.tile);
  double products = sums * length / BlockBuilder::warpThreads;
  double laneRows = double(tile.getWarpRows()) / rowLanes;
  double laneCols = double(tile.getWarpCols()) / colLanes;
  double loads = warps * length * (laneRows + laneCols) / four;
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
static KernelWork getPlainWork(const DenseOperands &operands) {
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
static std::optional<DenseTile> choose(const DenseOperands &operands,
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
        search.consider(tile, getLaunches(operands, tile));
    }
  }
  return search.best;
}

std::optional<DenseTile> bsr::gpu::chooseLaneTile(const DenseOperands &operands,
                                                  GPUAttr target) {
  if (!operands.type.isF32())
    return std::nullopt;
  const Chip &chip = *findChip(target.getChip());
  int64_t rows = target.getTileOutputs(), cols = target.getTileTokens();
  auto tile = choose(operands, chip, rows, cols);
  bool isGiven = tile && rows != 0 && cols != 0;
  if (!tile)
    tile = choose(operands, chip, /*rows=*/0, /*cols=*/0);
  if (tile && !isGiven &&
      bound(getPlainWork(operands), chip).seconds <=
          getSeconds(getLaunches(operands, *tile), chip))
    return std::nullopt;
  return tile;
}

std::unique_ptr<Multiplier>
bsr::gpu::createLaneMultiplier(const DenseMainloop &mainloop) {
  BlockBuilder &b = mainloop.b;
  auto getOperand = [&](const DenseTile::Side &side, bool isInnerLast,
                        int64_t ofWarp, int64_t lanes, Value number) {
    return LaneMultiplier::Operand{side.pitch,     isInnerLast,  ofWarp / lanes,
                                   four,           four * lanes, number,
                                   side.isSwizzled};
  };
  SumLayout layout{/*areFragments=*/false, /*colsTogether=*/four, colLanes,
                   /*rowsTogether=*/four, /*rowDistance=*/four * rowLanes};
  return std::make_unique<LaneMultiplier>(
      b,
      LaneMultiplier::Shape{b.b.getF32Type(), DenseTile::innerTile,
                            /*together=*/four},
      layout,
      getOperand(
          mainloop.tile.left, mainloop.operands.left.isInnerLast,
          mainloop.tile.getWarpRows(), rowLanes,
          b.multiplyAdd(b.div(b.lane, colLanes), four, mainloop.warpRow)),
      getOperand(
          mainloop.tile.right, mainloop.operands.right.isInnerLast,
          mainloop.tile.getWarpCols(), colLanes,
          b.multiplyAdd(b.rem(b.lane, colLanes), four, mainloop.warpCol)));
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a dense product is divided into work items, and what they pack.

#include "DenseProducts.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Columns of register tiles that rows are read for, at least, if it is worth
/// to pack them first.
static constexpr int64_t minColumns = 8;
/// As many, if packing also converts them once and for all.
static constexpr int64_t minWidenedColumns = 2;

/// What it costs to pack an element, or to gather it where it lies, in elements
/// that are read from lines side by side.
static constexpr int64_t packingCost = 4;

/// Where vectors stream from the second-level cache, rows are read in order
/// while others are multiplied: to pack a vector costs many times as much as to
/// read as many elements of rows.
static constexpr int64_t vectorPackingCost = 12;

/// Divides columns into `numParts`, or a few more.
BroadcastProduct::Columns
BroadcastProduct::divideColumns(int64_t numPanels, int64_t numParts) const {
  Columns result{c.getExtents(columns), 0, 1};
  result.extents.push_back(numPanels);
  while (result.numLeading != columns.size() &&
         numParts >= result.extents[result.numLeading])
    numParts = llvm::divideCeil(numParts, result.extents[result.numLeading++]);
  result.run = llvm::divideCeil(result.extents[result.numLeading], numParts);
  return result;
}

/// Divides the tiles of `rows`, and `numPanels` panels of lanes with them, into
/// work items: so that they read as little as possible. Nothing if there are
/// tiles of two sizes, and no blocks of them that are alike.
std::optional<BroadcastProduct::Division>
BroadcastProduct::divide(int64_t numPanels, ArrayRef<Tiles> rows) {
  int64_t tileRows = rows.front().size, numTiles = 0, extent = 0;
  for (const Tiles &tiles : rows) {
    numTiles += tiles.count;
    extent += tiles.count * tiles.size;
  }
  int64_t numInner = c.getSize(c.inner), numBatches = c.getSize(batch);
  int64_t numRows = numTiles * tileRows * numInner;
  int64_t numLanes = numPanels * c.getSize(columns) * e.target.panel();
  int64_t tileBytes = 4 * numSummands * tileRows * numInner;
  // A block fits into the cache; what is transposed is for several tiles.
  int64_t most = c.across ? std::max<int64_t>(1, numTiles / 4) : numTiles;
  int64_t least =
      isStreamed
          ? 1
          : llvm::divideCeil(numTiles, std::max<int64_t>(
                                           1, e.target.rowBytes() / tileBytes));
  // Columns whose vectors fit into the cache.
  int64_t columnBytes = (hasPairs ? 2 : 4) * numSummands * e.target.panel();
  int64_t mostColumns = std::max<int64_t>(1, e.target.rowBytes() / columnBytes);
  int64_t numColumns = numPanels * c.getSize(columns);
  bool isScattered = c.across || this->isScattered();
  std::optional<Division> best;
  int64_t bestCost = 0;
  bool isOneSize = rows.size() == 1;
  most = std::max(most, isOneSize ? least : 2 * least);
  for (int64_t blocks = least; blocks <= most;
       blocks = isOneSize ? 2 * blocks : blocks + 1) {
    Division division;
    division.blocks = blocks;
    division.height = extent / blocks;
    if (isOneSize) {
      Tiles tiles = rows.front();
      tiles.count = llvm::divideCeil(numTiles, blocks);
      division.blocks = llvm::divideCeil(numTiles, tiles.count);
      division.height = tiles.count * tiles.size;
      division.tiles = {tiles};
      division.lastTiles = numTiles - (division.blocks - 1) * tiles.count;
    } else {
      if (blocks > 1 && (extent % blocks || division.height < 2 * tileRows))
        continue;
      division.tiles = tileEvenly(division.height, tileRows);
      division.lastTiles = division.tiles.front().count;
    }
    int64_t numParts = llvm::divideCeil(minDenseItems, numBatches * blocks);
    if (isStreamed)
      numParts = std::max<int64_t>(numParts,
                                   llvm::divideCeil(numColumns, mostColumns));
    division.columns = divideColumns(numPanels, numParts);
    bool isWidened = c.isWidened(1 - c.vectors);
    division.packsRows =
        ((hasKBlocks && !isStreamed) || isWidened) &&
        tileBytes <= e.target.rowBytes() &&
        division.columns.getNumPerItem() >=
            (isWidened || isStreamed ? minWidenedColumns : minColumns);
    division.packsVectors =
        c.across || ((isScattered || c.isWidened(c.vectors)) &&
                     numTiles * numInner >= 4 * division.blocks);
    numParts = llvm::product_of(division.columns.getLeading()) *
               division.columns.getNumRuns();
    int64_t vectorCost = isStreamed ? vectorPackingCost : packingCost;
    int64_t cost = numRows * numParts *
                       (division.packsRows && !rowMemory ? packingCost : 1) +
                   numLanes * division.blocks * (isScattered ? vectorCost : 1);
    // Too few work items cost more than anything that they read.
    cost *= llvm::divideCeil(minDenseItems,
                             numBatches * division.blocks * numParts);
    if (best && bestCost <= cost)
      continue;
    bestCost = cost;
    best = division;
  }
  return best;
}

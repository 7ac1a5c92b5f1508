// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How extents are covered with tiles.

#include "bsr/Codegen/CPU/Kernels.h"
#include "gtest/gtest.h"

using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Every point of `[0, extent)` is in one tile, in their order.
static void expectCover(llvm::ArrayRef<Tiles> tiles, int64_t extent) {
  int64_t next = 0;
  for (const Tiles &tile : tiles) {
    EXPECT_EQ(tile.base, next);
    EXPECT_GT(tile.size, 0);
    EXPECT_GT(tile.count, 0);
    next += tile.size * tile.count;
  }
  EXPECT_EQ(next, extent);
}

TEST(Tiles, RemainderIsOneSmallerTile) {
  for (int64_t extent = 1; extent != 40; ++extent)
    for (int64_t size = 1; size != 9; ++size) {
      auto tiles = tileWithRemainder(extent, size);
      expectCover(tiles, extent);
      for (const Tiles &tile : tiles)
        EXPECT_TRUE(tile.size == size || (tile.size < size && tile.count == 1));
    }
}

TEST(Tiles, EvenTilesAreFewAndOfAboutOneSize) {
  for (int64_t extent = 1; extent != 40; ++extent)
    for (int64_t limit = 1; limit != 9; ++limit) {
      auto tiles = tileEvenly(extent, limit);
      expectCover(tiles, extent);
      int64_t count = 0;
      for (const Tiles &tile : tiles) {
        EXPECT_LE(tile.size, limit);
        EXPECT_LE(tiles.front().size - tile.size, 1);
        count += tile.count;
      }
      EXPECT_EQ(count, llvm::divideCeil(extent, limit));
    }
}

TEST(Tiles, VectorsEndInSmallerPowersOfTwo) {
  for (int64_t extent = 1; extent != 70; ++extent)
    for (int64_t width : {1, 2, 8, 16}) {
      auto vectors = getVectors(extent, width);
      expectCover(vectors, extent);
      for (const Tiles &tile : vectors) {
        EXPECT_TRUE(llvm::isPowerOf2_64(tile.size));
        EXPECT_TRUE(tile.size == width || tile.count == 1 ||
                    &tile == &vectors.front());
      }
    }
}

TEST(Tiles, DivisorIsTheLargestWithinTheLimit) {
  EXPECT_EQ(getDivisor(12, 5), 4);
  EXPECT_EQ(getDivisor(13, 5), 1);
  EXPECT_EQ(getDivisor(8, 100), 8);
  EXPECT_EQ(getDivisor(1, 1), 1);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tiles that products with sparse weights get on each chip.

#include "Codegen/GPU/SDDMM/SDDMMTile.h"
#include "Codegen/GPU/SpMM/SpMMTile.h"
#include "Codegen/GPU/SpMM/WarpgroupTile.h"
#include "bsr/Codegen/GPU/Core/TileSearch.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// A weight of 1024 outputs and inputs with blocks of `block`, of which
/// `density` is stored, and `tokens` tokens.
static SpMMShape getSpMM(int64_t block, double density, int64_t tokens,
                         int64_t bytes = 2, bool isOnTensorCores = true) {
  SpMMShape shape = {};
  shape.outBlock = shape.inBlock = shape.blockRows = shape.blockCols = block;
  shape.numLines = shape.length = 1024 / block;
  shape.slots = int64_t(density * double(shape.numLines * shape.length));
  shape.activations = {1, 1024, tokens};
  shape.elementBytes = shape.outputBytes = bytes;
  shape.isOnTensorCores = isOnTensorCores;
  return shape;
}

template <typename Tile, typename Shape>
static double getTime(const Tile &tile, const Shape &shape, const Chip &chip) {
  return getSeconds(tile.getWork(shape), chip);
}

/// What a tile has to be, on whatever chip.
static void expectFits(const SpMMTile &tile, const SpMMShape &shape,
                       const Chip &chip) {
  SpMMGrid grid = tile.getGrid(shape);
  EXPECT_LE(grid.sharedBytes + BlockBuilder::sharedSymbolBytes,
            chip.sharedLimit);
  EXPECT_LE(grid.threads, nvidia::maxBlockThreads);
  EXPECT_LE(grid.cluster[0] * grid.cluster[1], chip.maxCluster);
  EXPECT_GE(tile.stages, 2);
  // Warps have all of the thread block's sums, and room for them.
  EXPECT_EQ(tile.lines / tile.warpLines * (tile.tokens / tile.warpTokens),
            blockWarps);
  EXPECT_LE(tile.getSums(shape), mostSums);
  EXPECT_TRUE(tile.getPlan(shape).fits(chip.sharedLimit));
  EXPECT_TRUE(tile.shareOutputs == 0 || chip.wgmmaRate != 0);
}

TEST(SpMMTile, FitsEachChip) {
  for (const Chip &chip : getChips())
    for (int64_t block : {16, 32, 64})
      for (double density : {.02, .25, 1.0})
        for (int64_t tokens : {32, 136, 4096})
          for (bool isOnTensorCores : {true, false}) {
            SpMMShape shape =
                getSpMM(block, density, tokens, 2, isOnTensorCores);
            auto tile = SpMMTile::choose(shape, chip, 0, 0, 0);
            SCOPED_TRACE(std::string(chip.name) + " " + std::to_string(block));
            ASSERT_TRUE(tile);
            expectFits(*tile, shape, chip);
            // Tokens beyond the last power of 2 would be computed for nothing.
            EXPECT_LE(
                tile->tokens,
                std::max<int64_t>(32, int64_t(llvm::PowerOf2Ceil(tokens))));
          }
}

TEST(SpMMTile, TakesLeastTime) {
  const Chip &chip = *findChip("sm_90a");
  for (double density : {.05, .5}) {
    SpMMShape shape = getSpMM(32, density, 4096);
    auto best = SpMMTile::choose(shape, chip, 0, 0, 0);
    ASSERT_TRUE(best);
    int64_t given = 0;
    for (int64_t outputs : {64, 128, 256, 512})
      for (int64_t tokens : {32, 64, 128, 256})
        if (auto other = SpMMTile::choose(shape, chip, outputs, tokens, 0)) {
          // What is given is what it has.
          EXPECT_EQ(other->lines * shape.outBlock, outputs);
          EXPECT_EQ(other->tokens, tokens);
          EXPECT_LE(getTime(*best, shape, chip), getTime(*other, shape, chip));
          ++given;
        }
    EXPECT_GE(given, 8);
  }
}

TEST(SpMMTile, ClustersAreOfChipsThatHaveThem) {
  SpMMShape shape = getSpMM(32, .1, 4096);
  auto tile = SpMMTile::choose(shape, *findChip("sm_90a"), 0, 0, 2);
  ASSERT_TRUE(tile);
  EXPECT_EQ(tile->shareOutputs, 2);
  EXPECT_EQ(tile->getGrid(shape).cluster, (std::array<int64_t, 2>{2, 1}));
  // Others have all threads copy, as blocks that are packed, or of f32, do.
  EXPECT_EQ(SpMMTile::choose(shape, *findChip("sm_90"), 0, 0, 2)->shareOutputs,
            0);
  EXPECT_EQ(
      SpMMTile::choose(getSpMM(32, .1, 4096, 4), *findChip("sm_90a"), 0, 0, 2)
          ->shareOutputs,
      0);
}

TEST(SpMMTile, NoneWhereNothingFits) {
  SpMMShape shape = getSpMM(64, .1, 4096);
  Chip small = *findChip("sm_80");
  small.sharedLimit = 4096;
  EXPECT_FALSE(SpMMTile::choose(shape, small, 0, 0, 0));
}

TEST(WarpgroupTile, IsOfChipsWithWarpgroups) {
  SpMMShape shape = getSpMM(64, .1, 4096);
  for (const Chip &chip : getChips()) {
    auto tile = WarpgroupTile::choose(shape, chip, 0, 0, 0, 0);
    EXPECT_EQ(bool(tile), chip.wgmmaRate != 0) << std::string(chip.name);
    if (!tile)
      continue;
    EXPECT_LE(tile->getGrid(shape).sharedBytes +
                  BlockBuilder::sharedSymbolBytes,
              chip.sharedLimit);
    EXPECT_EQ(tile->units * tile->tokens,
              WarpgroupTile::warpgroups * tile->groupUnits * tile->groupTokens);
    EXPECT_LE(tile->getClusterBlocks(), 8);
  }
  auto shared =
      WarpgroupTile::choose(shape, *findChip("sm_90a"), 128, 128, 2, 2);
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->units * warpgroupRows, 128);
  EXPECT_EQ(shared->tokens, 128);
  EXPECT_EQ(shared->getClusterBlocks(), 4);
}

namespace {
class SDDMMTileTest : public ::testing::Test {
protected:
  SDDMMTileTest() { context.loadDialect<BSRDialect>(); }

  SDDMMShape getShape(int64_t block, int64_t slots, int64_t tokens,
                      int64_t bytes = 2) {
    return {PatternType::get(&context, 2048, 1024, block, block, slots),
            {2, 2048, tokens},
            {2, 1024, tokens},
            bytes,
            4};
  }

  MLIRContext context;
};
} // namespace

TEST_F(SDDMMTileTest, FitsEachChip) {
  for (const Chip &chip : getChips())
    for (int64_t block : {16, 32, 64})
      for (int64_t slots : {16, 512})
        for (int64_t tokens : {64, 136, 4096}) {
          SDDMMShape shape = getShape(block, slots, tokens);
          auto tile = SDDMMTile::choose(shape, chip, 0, 0);
          SCOPED_TRACE(std::string(chip.name) + " " + std::to_string(block));
          // Where there is little shared memory, not all have a tile.
          constexpr uint32_t enough = 128 << 10;
          ASSERT_TRUE(tile || chip.sharedLimit < enough);
          if (!tile)
            continue;
          EXPECT_LE(tile->getSharedBytes(shape) +
                        BlockBuilder::sharedSymbolBytes,
                    chip.sharedLimit);
          EXPECT_LE(tile->shares, chip.maxCluster);
          EXPECT_GE(tile->stages, 2);
          EXPECT_TRUE(tile->getWindows(shape).fits(chip.sharedLimit));
          // No owner is there for nothing: each has a step.
          EXPECT_LE(tile->grid,
                    tile->getMostCost(shape) * tile->getSteps(shape));
        }
}

TEST_F(SDDMMTileTest, HasWhatIsGiven) {
  SDDMMShape shape = getShape(32, 512, 4096);
  for (int64_t rows : {32, 64, 128, 256})
    EXPECT_EQ(SDDMMTile::choose(shape, *findChip("sm_80"), rows, 0)->lines * 32,
              rows);
  SDDMMShape large = getShape(64, 256, 4096);
  EXPECT_EQ(SDDMMTile::choose(large, *findChip("sm_90a"), 0, 1)->shares, 1);
  EXPECT_EQ(SDDMMTile::choose(large, *findChip("sm_90a"), 0, 4)->shares, 4);
  EXPECT_EQ(SDDMMTile::choose(large, *findChip("sm_80"), 0, 4)->shares, 1);
}

TEST_F(SDDMMTileTest, TakesLeastTime) {
  SDDMMShape shape = getShape(32, 512, 4096);
  const Chip &chip = *findChip("sm_80");
  double best = getTime(*SDDMMTile::choose(shape, chip, 0, 0), shape, chip);
  for (int64_t rows : {32, 64, 128, 256, 512}) {
    auto other = SDDMMTile::choose(shape, chip, rows, 0);
    if (other->stages >= 3)
      EXPECT_LE(best, getTime(*other, shape, chip)) << rows;
  }
}

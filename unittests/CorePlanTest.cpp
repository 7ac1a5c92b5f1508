// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Divisions of sparse products among many cores.

#include "bsr/Partition/CorePlan.h"
#include <gtest/gtest.h>
#include <set>

using namespace mlir;
using namespace mlir::bsr;

static Cores createCores() { return {1472, 624 * 1024.0, 4, 4, 16, 4}; }

/// A square matrix of `extent`, blocks of `block` by `block`.
static BlockProducts createProducts(int64_t extent, int64_t block,
                                    double density, int64_t tokens) {
  int64_t grid = extent / block;
  BlockProducts products{grid, grid, block, block};
  products.blocks = int64_t(density * double(grid * grid));
  products.tokens = tokens;
  products.valueBytes = 2;
  products.forward = products.transposed = products.sampled = 1;
  return products;
}

TEST(CorePlanTest, RandomBlocksAreDifferentAndAsManyAsAskedFor) {
  for (double density : {0.01, 0.3, 0.7, 1.0}) {
    BlockProducts products = createProducts(512, 16, density, 64);
    std::set<std::pair<int, int>> seen;
    for (BlockAt block : createRandomBlocks(products, 7)) {
      EXPECT_GE(block.row, 0);
      EXPECT_LT(block.row, 32);
      EXPECT_GE(block.col, 0);
      EXPECT_LT(block.col, 32);
      EXPECT_TRUE(seen.emplace(block.row, block.col).second);
    }
    EXPECT_EQ(int64_t(seen.size()), products.blocks);
  }
}

TEST(CorePlanTest, NoCoreHasMuchMoreThanTheMean) {
  unsigned planned = 0;
  for (int64_t extent : {256, 1024, 4096})
    for (int64_t block : {4, 16})
      for (double density : {0.03125, 0.1, 0.5})
        for (int64_t tokens : {64, 100, 2048})
          for (uint64_t seed : {0, 1, 2}) {
            BlockProducts products =
                createProducts(extent, block, density, tokens);
            Cores cores = createCores();
            std::optional<CoreDivision> division = planCores(products, cores);
            if (!division)
              continue;
            ++planned;
            EXPECT_LE(division->getCores(), cores.count);
            CoreCost cost = getCoreCost(products, cores, *division,
                                        createRandomBlocks(products, seed));
            EXPECT_LE(cost.imbalance, 1.05);
            EXPECT_GE(cost.imbalance, 1);
          }
  EXPECT_GT(planned, 100u);
}

TEST(CorePlanTest, CostsAreCountedCoreByCore) {
  // A full 2x2 grid of blocks of 2x3, four tokens, a core for each block row.
  BlockProducts products{2, 2, 2, 3, 4, 4, 4, 1, 1, 1};
  Cores cores{2, 1e9, 8, 1, 1, 2};
  std::vector<BlockAt> blocks = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  CoreCost cost = getCoreCost(products, cores, {2, 1, 1}, blocks);
  EXPECT_EQ(cost.imbalance, 1);
  // Two blocks of 6 values by 4 tokens, two a cycle.
  double compute = 2 * 12;
  // Forward: a row of 2 by 4 floats comes in; of both columns, 3 by 4 floats,
  // the other core has parts, which are added up two a cycle.
  EXPECT_EQ(cost.forward, compute + (32 + 96) / 8.0 + 24 / 2.0);
  // Transposed: both columns come in, and the row is its own.
  EXPECT_EQ(cost.transposed, compute + 96 / 8.0);
  // Sampled: the row and both columns.
  EXPECT_EQ(cost.sampled, compute + (32 + 96) / 8.0);
  EXPECT_EQ(cost.exchangeBytes, 2 * (128 + 96 + 128));
  EXPECT_EQ(cost.memory, 2 * 6 * 4 + 32 + 96);
  // Tokens in two shares: sampled products have parts of every block.
  cost = getCoreCost(products, cores, {1, 1, 2}, blocks);
  EXPECT_EQ(cost.forward, 4 * 6 + 32 / 8.0);
  EXPECT_EQ(cost.sampled, 4 * 6 + (32 + 48 + 96) / 8.0 + 24 / 2.0);
}

TEST(CorePlanTest, WhatFitsNowhereHasNoPlan) {
  BlockProducts products = createProducts(4096, 16, 0.1, 2048);
  Cores cores = createCores();
  EXPECT_TRUE(planCores(products, cores).has_value());
  cores.memory = 1024;
  EXPECT_FALSE(planCores(products, cores).has_value());
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When one way of a kernel counts as faster, and as wrong.

#include "../tools/sparse-compile/WayTimes.h"
#include "gtest/gtest.h"
#include <cmath>
#include <limits>

using namespace mlir::bsr;

/// Times of runs in which a way takes `share` of the own time, which `drifts`
/// from the first to the last launch.
static WayTimes measure(int64_t share, int64_t drift = 0, int numRuns = 8) {
  WayTimes times;
  for (int i = 0; i != numRuns; ++i)
    times.add(
        {1000 + 10 * i, share * (1000 + 10 * i) / 100, 1000 + 10 * i + drift});
  return times;
}

TEST(WayTimesTest, WhatIsFasterInEachRunIsFaster) {
  WayTimes times = measure(90);
  EXPECT_TRUE(times.isFaster(0));
  EXPECT_NEAR(times.getRatio(0), 0.9, 1e-3);
  EXPECT_EQ(times.getOwnTime(), 1040);
}

TEST(WayTimesTest, AFiftiethIsNotEnough) {
  EXPECT_FALSE(measure(99).isFaster(0));
}

TEST(WayTimesTest, NoiseIsNotEnough) {
  EXPECT_TRUE(measure(97, /*drift=*/10).isFaster(0));
  EXPECT_FALSE(measure(97, /*drift=*/80).isFaster(0));
}

TEST(WayTimesTest, FewRunsAreNotEnough) {
  EXPECT_TRUE(measure(50, 0, WayTimes::fewestRuns).isFaster(0));
  EXPECT_FALSE(measure(50, 0, WayTimes::fewestRuns - 1).isFaster(0));
}

TEST(WayTimesTest, DisturbedRunsDoNotCount) {
  WayTimes times = measure(110);
  for (int i = 0; i != 20; ++i)
    times.add({1000, 100, 1200});
  EXPECT_EQ(times.getNumRuns(), 8U);
  EXPECT_FALSE(times.isFaster(0));
}

TEST(WayTimesTest, ThreeOfFourRunsMustBeFaster) {
  WayTimes times;
  for (int i = 0; i != 12; ++i)
    times.add({1000, i < 4 ? 1001 : 900, 1000});
  EXPECT_LT(times.getRatio(0), 0.95);
  EXPECT_FALSE(times.isFaster(0));
}

TEST(WayTimesTest, WaysAreApart) {
  WayTimes times;
  for (int i = 0; i != 8; ++i)
    times.add({1000, 1100, 800, 1000});
  EXPECT_FALSE(times.isFaster(0));
  EXPECT_TRUE(times.isFaster(1));
}

TEST(WayTimesTest, RoundingsAreNoDifference) {
  constexpr double f32 = 0x1p-24, bf16 = 0x1p-9, nan = NAN;
  double own[] = {1, -100, nan, INFINITY};
  EXPECT_EQ(describeDifference("k", own, own, f32, f32), "");
  double rounded[] = {1 + 1e-3, -100, nan, INFINITY};
  EXPECT_EQ(describeDifference("k", own, rounded, f32, f32), "");
  double wrong[] = {1, -100.02, nan, INFINITY};
  EXPECT_EQ(describeDifference("k", own, wrong, f32, f32),
            "expected all kernels for @k to compute the same, but got -100.02 "
            "instead of -100 at 1");
  EXPECT_EQ(describeDifference("k", own, wrong, bf16, f32), "");
  double missing[] = {1, -100, 0, INFINITY};
  EXPECT_EQ(describeDifference("k", own, missing, f32, f32),
            "expected all kernels for @k to compute the same, but got 0 "
            "instead of nan at 2");
  double finite[] = {1, -100, nan, 5};
  EXPECT_EQ(describeDifference("k", own, finite, f32, f32),
            "expected all kernels for @k to compute the same, but got 5 "
            "instead of inf at 3");
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many bytes are live when.

#include "bsr/Analysis/LiveRanges.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::bsr;

TEST(LiveRanges, NothingTakesNothing) {
  Peak peak = findPeak({});
  EXPECT_EQ(peak.at, 0);
  EXPECT_EQ(peak.bytes, 0);
}

TEST(LiveRanges, BothEndsAreIncluded) {
  Peak peak = findPeak({{0, 2, 8}, {2, 4, 16}});
  EXPECT_EQ(peak.at, 2);
  EXPECT_EQ(peak.bytes, 24);
}

TEST(LiveRanges, WhatEndsMakesRoomForWhatBegins) {
  Peak peak = findPeak({{0, 1, 8}, {2, 3, 8}});
  EXPECT_EQ(peak.at, 0);
  EXPECT_EQ(peak.bytes, 8);
}

TEST(LiveRanges, TheFirstOfEqualPeaksCounts) {
  Peak peak = findPeak({{5, 6, 4}, {1, 2, 3}, {1, 1, 1}});
  EXPECT_EQ(peak.at, 1);
  EXPECT_EQ(peak.bytes, 4);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hashes and random numbers against published values.

#include "support/Random.h"
#include "Assertions.h"
#include "support/Hash.h"
#include <cmath>
#include <cstring>

using namespace sparse_opt;

TEST(RandomTest, HashHasThePublishedValues) {
  ASSERT_EQ(hexadecimal(xxh64("")), "ef46db3751d8e999");
  ASSERT_EQ(hexadecimal(xxh64("a")), "d24ec4f1a98c6e5b");
  ASSERT_EQ(hexadecimal(xxh64("abc")), "44bc2cf5ad770999");
  ASSERT_EQ(hexadecimal(xxh64("Nobody inspects the spammish repetition")),
            "fbcea83c8a378bf1");
  ASSERT_EQ(hexadecimal(fnv1a("")), "cbf29ce484222325");
  ASSERT_EQ(hexadecimal(fnv1a("a")), "af63dc4c8601ec8c");
  ASSERT_EQ(hexadecimal(fnv1a("bar", fnv1a("foo"))), "85944171f73967e8");
}

TEST(RandomTest, HashDoesNotDependOnThePieces) {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += char(i * 37);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Hasher hash;
    hash.add(text.data(), cut / 2);
    hash.add(text.data() + cut / 2, cut - cut / 2);
    hash.add(text.data() + cut, text.size() - cut);
    ASSERT_EQ(hexadecimal(hash.value()), hexadecimal(xxh64(text)));
  }
}

TEST(RandomTest, PhiloxHasThePublishedValues) {
  using Words = std::array<uint32_t, 4>;
  uint32_t ones = 0xffffffff;
  ASSERT_TRUE(philox({0, 0, 0, 0}, {0, 0}) ==
              (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  ASSERT_TRUE(philox({ones, ones, ones, ones}, {ones, ones}) ==
              (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  ASSERT_TRUE(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                     {0xa4093822, 0x299f31d0}) ==
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, NormalQuantileIsTheInverseOfTheNormalDistribution) {
  // 1 - 1e-16 is no f64 other than 1, so the upper tail is tried less far out.
  for (double p : {1e-300, 1e-16, 1e-10, 1e-4, 0.02, 0.074, 0.076, 0.3, 0.5,
                   0.7, 0.924, 0.926, 0.99, 0.9999}) {
    double back = std::erfc(-normalQuantile(p) / std::sqrt(2.0)) / 2;
    ASSERT_LE(std::fabs(back - p), 3e-13 * p);
  }
}

TEST(RandomTest, NumbersBelowABoundAreEven) {
  RandomStream stream(7, "a", "b");
  int counts[5] = {};
  for (int i = 0; i < 50000; ++i)
    ++counts[stream.below(5, i)];
  for (int count : counts)
    ASSERT_LT(std::abs(count - 10000), 400); // 4.5 standard deviations
}

TEST(RandomTest, StreamsDifferBySeedPurposeAndName) {
  uint64_t bits = RandomStream(1, "init", "w").bits(0);
  ASSERT_TRUE(bits != RandomStream(2, "init", "w").bits(0));
  ASSERT_TRUE(bits != RandomStream(uint64_t(1) << 32 | 1, "init", "w").bits(0));
  ASSERT_TRUE(bits != RandomStream(1, "pattern", "w").bits(0));
  ASSERT_TRUE(bits != RandomStream(1, "init", "v").bits(0));
  ASSERT_TRUE(bits != RandomStream(1, "init", "w").bits(uint64_t(1) << 32));
  ASSERT_EQ(bits, RandomStream(1, "init", "w").bits(0));
}

TEST(RandomTest, SchedulesFallFromTheDropFractionToZero) {
  for (int i = 0; i <= 1000; ++i) {
    double t = i / 1000.0;
    ASSERT_EQ(bsr_drop_fraction(BSR_CONSTANT, 0.3, t), 0.3);
    ASSERT_EQ(bsr_drop_fraction(BSR_LINEAR, 0.3, t), 0.3 * (1 - t));
    double cosine = 0.15 * (1 + std::cos(std::acos(-1.0) * t));
    ASSERT_LT(std::fabs(bsr_drop_fraction(BSR_COSINE, 0.3, t) - cosine), 1e-14);
  }
  ASSERT_EQ(bsr_drop_fraction(BSR_COSINE, 0.3, 0), 0.3);
  ASSERT_EQ(bsr_drop_fraction(BSR_LINEAR, 0.5, -1), 0.5);
  ASSERT_EQ(bsr_drop_fraction(BSR_LINEAR, 0.5, 2), 0.0);
  for (int i = 0; i <= 1000; ++i) {
    double drop = bsr_drop_fraction(BSR_COSINE, 1, i / 1000.0);
    ASSERT_TRUE(drop >= 0 && drop <= 1);
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What regrown blocks begin with, against the definition taken literally.

#include "Assertions.h"
#include "Definition.h"
#include "support/Random.h"
#include <cmath>

using namespace check;

static bsr_status setNewBlocks(const Session &session, bsr_new_blocks start,
                               int64_t pattern = 0) {
  return bsr_session_set_new_blocks(session.get(), pattern, &start);
}

static std::vector<float> read(const Session &session, int64_t buffer,
                               int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  require(bsr_session_read(session.get(), buffer, 0, 4 * size, values.data()));
  return values;
}

/// Compares what `change`, an update or a replacement, makes of matrix `m`
/// with what `start` says.
template <typename Change>
static void compareUpdate(const Session &session, const Matrix &m,
                          bsr_new_blocks start, double std, Change change) {
  const int64_t size = m.blockRows * m.blockCols, all = m.slots * size;
  const int64_t blocks = m.rows * m.cols / size;
  std::map<Place, int32_t> old = Blocks(session, m, 0).slots;
  std::vector<std::vector<float>> before, expected;
  for (int64_t b : {0, 1, 2})
    before.push_back(read(session, b, all));
  auto update = uint64_t(countersOf(session).pattern_updates + 1);
  ASSERT_TRUE(succeeds(setNewBlocks(session, start)));
  change();
  std::map<Place, int32_t> now = Blocks(session, m, 0).slots;
  std::set<int32_t> wasUsed, isUsed;
  for (auto &[place, slot] : old)
    wasUsed.insert(slot);
  expected = before;
  // The last of these is the mean of f32 numbers that f64 holds exactly.
  double sums[3] = {};
  int64_t kept = 0;
  for (auto &[place, slot] : now)
    if (old.count(place)) {
      ASSERT_EQ(old.at(place), slot);
      ++kept;
      for (int b : {1, 2})
        for (int64_t i = 0; i < size; ++i)
          sums[b] += before[size_t(b)][size_t(slot * size + i)];
    }
  sparse_opt::RandomStream random(countersOf(session).seed, "regrown", "w0");
  int64_t regrown = 0;
  for (auto &[place, slot] : now) {
    isUsed.insert(slot);
    if (old.count(place))
      continue;
    ++regrown;
    int64_t block = place.first * (m.cols / m.blockCols) + place.second;
    for (int64_t i = 0; i < size; ++i) {
      auto at = size_t(slot * size + i);
      uint64_t counter =
          (update * uint64_t(blocks) + uint64_t(block)) * uint64_t(size) +
          uint64_t(i);
      expected[0][at] = start.values == BSR_VALUES_RANDOM
                            ? float(std * random.normal(counter))
                            : 0;
      for (size_t b : {1, 2}) {
        float first = b == 2 ? 0.25f : 0;
        if (start.state == BSR_STATE_FIRST ||
            (start.state == BSR_STATE_KEPT && !wasUsed.count(slot)))
          expected[b][at] = first;
        if (start.state == BSR_STATE_MEAN)
          expected[b][at] = kept ? float(sums[b] / double(kept * size)) : first;
      }
    }
  }
  ASSERT_GT(regrown, 0);
  for (int32_t slot = 0; slot < m.slots; ++slot)
    for (auto &values : expected)
      if (wasUsed.count(slot) && !isUsed.count(slot))
        std::fill_n(values.begin() + slot * size, size, 0.0f);
  for (size_t b : {0, 1, 2})
    ASSERT_EQ(read(session, int64_t(b), all), expected[b]) << b;
}

TEST(NewBlocksTest, AreTheDefinition) {
  Numbers numbers(3);
  for (auto [blockRows, blockCols] :
       {std::pair<int64_t, int64_t>{1, 1}, {4, 2}, {16, 16}, {1, 64}})
    for (bsr_new_values values : {BSR_VALUES_ZERO, BSR_VALUES_RANDOM})
      for (bsr_new_state state :
           {BSR_STATE_FIRST, BSR_STATE_MEAN, BSR_STATE_KEPT})
        for (double std : {0.0, 0.125}) {
          if (values == BSR_VALUES_ZERO && std != 0)
            continue;
          Matrix m = {9 * blockRows, 7 * blockCols, blockRows, blockCols, 24};
          Json manifest = makeManifest({m});
          manifest["buffers"][0]["init"] = "normal(0.5)";
          Step step = load(manifest);
          Session session = start(step, 11);
          ASSERT_TRUE(succeeds(bsr_session_make_pattern(session.get(), 0, 20)));
          fillSmall(session, m, 0, numbers);
          bsr_new_blocks rule = {values, state, std, 0, 0};
          for (double drop : {0.3, 1.0})
            compareUpdate(session, m, rule, std == 0 ? 0.5 : std, [&] {
              bsr_pattern_update set = {BSR_SET, BSR_L1, drop, 0, 0, 0};
              require(bsr_session_update(session.get(), &set, 1));
            });
          // More come than go: the last ones take slots that were free.
          int64_t stored[20], chosen[5];
          require(bsr_session_stored(session.get(), 0, 20, stored));
          require(bsr_session_choose_absent(session.get(), 0, 20, stored, 5,
                                            chosen));
          bsr_replacement more = {0, 2, 5, stored, chosen};
          compareUpdate(session, m, rule, std == 0 ? 0.5 : std, [&] {
            require(bsr_session_replace(session.get(), &more, 1));
          });
        }
}

TEST(NewBlocksTest, OfOtherTypes) {
  for (const char *type : {"f64", "bf16", "f16"}) {
    Matrix m = {16, 16, 4, 4, 8, type};
    Step step = load(makeManifest({m}));
    Session session = start(step);
    ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
    require(initBuffer(session, 1, "constant(0.75)"));
    ASSERT_TRUE(succeeds(
        setNewBlocks(session, {BSR_VALUES_RANDOM, BSR_STATE_MEAN, 0, 0, 0})));
    ASSERT_TRUE(succeeds(updatePatterns(session, 0.5, nullptr)));
    // The mean of one number is that number, in each type.
    bsr_buffer_info info;
    require(bsr_step_buffer(step.get(), 1, &info));
    std::vector<char> found(size_t(info.bytes)), uniform(size_t(info.bytes));
    require(bsr_session_read(session.get(), 1, 0, info.bytes, found.data()));
    require(initBuffer(session, 1, "constant(0.75)"));
    require(bsr_session_read(session.get(), 1, 0, info.bytes, uniform.data()));
    ASSERT_EQ(found, uniform);
  }
}

TEST(NewBlocksTest, CountFromTheirFirst) {
  for (auto [blockRows, blockCols] :
       {std::pair<int64_t, int64_t>{1, 1}, {4, 2}, {16, 16}}) {
    Matrix m = {9 * blockRows, 7 * blockCols, blockRows, blockCols, 24};
    Json manifest = makeManifest({m});
    const char *inits[] = {"", "zeros", "ones"};
    for (size_t b : {1, 2}) {
      manifest["buffers"][b]["role"] = "count";
      manifest["buffers"][b]["init"] = inits[b];
      manifest["buffers"][b]["shape"] = {24, 1, 1};
    }
    Step step = load(manifest);
    Session session = start(step, 11);
    ASSERT_TRUE(succeeds(bsr_session_make_pattern(session.get(), 0, 20)));
    std::vector<float> ages(24);
    for (size_t slot = 0; slot < ages.size(); ++slot)
      ages[slot] = float(100 + slot);
    for (int64_t b : {1, 2})
      require(bsr_session_write(session.get(), b, 0, 4 * 24, ages.data()));
    std::map<Place, int32_t> old = Blocks(session, m, 0).slots;
    bsr_pattern_update set = {BSR_SET, BSR_L1, 0.5, 0, 0, 0};
    ASSERT_TRUE(succeeds(bsr_session_update(session.get(), &set, 1)));
    int regrown = 0;
    for (auto &[place, slot] : Blocks(session, m, 0).slots) {
      bool isNew = !old.count(place);
      regrown += isNew;
      for (int64_t b : {1, 2})
        ASSERT_EQ(read(session, b, 24)[size_t(slot)],
                  isNew ? float(b - 1) : ages[size_t(slot)]);
    }
    ASSERT_EQ(regrown, 10);
    ASSERT_TRUE(
        fails(setNewBlocks(session, {BSR_VALUES_ZERO, BSR_STATE_MEAN, 0, 0, 0}),
              BSR_INVALID_ARGUMENT,
              "expected new_state first in a step that was compiled "
              "with --block-steps, which counts from it, but got mean "
              "for pattern 'w0'"));
    ASSERT_TRUE(
        fails(setNewBlocks(session, {BSR_VALUES_ZERO, BSR_STATE_KEPT, 0, 0, 0}),
              BSR_INVALID_ARGUMENT,
              "expected new_state first in a step that was compiled "
              "with --block-steps, which counts from it, but got kept "
              "for pattern 'w0'"));
  }
}

// The blocks of the first pattern are at the end of a ramp, new ones at its
// begin; what the optimizer keeps may be what it was then.
TEST(NewBlocksTest, BeginTheirRamp) {
  Matrix m = {12, 20, 4, 2, 24};
  Json manifest = makeManifest({m});
  manifest["buffers"][1]["role"] = "count";
  manifest["buffers"][1]["init"] = "constant(30)";
  manifest["buffers"][1]["shape"] = {24, 1, 1};
  Step step = load(manifest);
  Session session = start(step, 11);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  std::map<Place, int32_t> old = Blocks(session, m, 0).slots;
  for (auto &[place, slot] : old)
    ASSERT_EQ(read(session, 1, 24)[size_t(slot)], 30);
  ASSERT_TRUE(succeeds(setNewBlocks(
      session, {BSR_VALUES_ZERO, BSR_STATE_KEPT, 0, /*own_steps=*/0, 30})));
  bsr_pattern_update set = {BSR_SET, BSR_L1, 0.5, 0, 0, 0};
  ASSERT_TRUE(succeeds(bsr_session_update(session.get(), &set, 1)));
  int regrown = 0;
  for (auto &[place, slot] : Blocks(session, m, 0).slots) {
    bool isNew = !old.count(place);
    regrown += isNew;
    ASSERT_EQ(read(session, 1, 24)[size_t(slot)], isNew ? 0 : 30);
  }
  ASSERT_EQ(regrown, 6); // all that were absent
  ASSERT_TRUE(fails(
      setNewBlocks(session, {BSR_VALUES_ZERO, BSR_STATE_FIRST, 0, 0, 40}),
      BSR_INVALID_ARGUMENT,
      "expected a step compiled with --block-ramp=40 for that new_ramp, but "
      "got one with --block-ramp=30 for pattern 'w0'"));
  ASSERT_TRUE(
      fails(setNewBlocks(session, {BSR_VALUES_ZERO, BSR_STATE_FIRST, 0, 1, 0}),
            BSR_INVALID_ARGUMENT,
            "expected a step compiled with --block-steps for new_step block, "
            "but got one without for pattern 'w0'"));
}

TEST(NewBlocksTest, Refusals) {
  Step step = load(makeManifest({{8, 8, 2, 2, 8}}));
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  auto refuses = [&](bsr_new_blocks start, const std::string &sentence) {
    ASSERT_TRUE(fails(setNewBlocks(session, start), BSR_INVALID_ARGUMENT,
                      sentence + " for pattern 'w0'"));
  };
  refuses({bsr_new_values(2), BSR_STATE_FIRST, 0, 0, 0},
          "expected first values from 0 to 1, but got 2");
  refuses({BSR_VALUES_ZERO, bsr_new_state(3), 0, 0, 0},
          "expected first state from 0 to 2, but got 3");
  refuses({BSR_VALUES_RANDOM, BSR_STATE_FIRST, NAN, 0, 0},
          "expected a standard deviation of at least 0, but got nan");
  ASSERT_TRUE(fails(setNewBlocks(session, {}, 1), BSR_INVALID_ARGUMENT,
                    "expected the index of one of 1 patterns, but got 1"));
  refuses({BSR_VALUES_ZERO, BSR_STATE_FIRST, 0, 0, 40},
          "expected a step compiled with --block-ramp=40 for that new_ramp, "
          "but got one with --block-ramp=0");
  Json manifest = makeManifest({{8, 8, 2, 2, 8}});
  manifest["buffers"][0].erase("init");
  step = load(manifest);
  session = start(step);
  refuses({BSR_VALUES_RANDOM, BSR_STATE_FIRST, 0, 0, 0},
          "expected a standard deviation (new_std) of the random values of new "
          "blocks, but got a weight that does not begin by normal(s)");
  ASSERT_TRUE(succeeds(
      setNewBlocks(session, {BSR_VALUES_RANDOM, BSR_STATE_KEPT, 1, 0, 0})));
  // Half of the first moments is another process's.
  manifest["sharded"] = 2;
  manifest["buffers"][1]["role"] = "state";
  manifest["buffers"][1]["whole"] = {8, 2, 2};
  manifest["buffers"][1]["shape"] = {4, 2, 2};
  step = load(manifest);
  session = start(step);
  refuses({BSR_VALUES_ZERO, BSR_STATE_MEAN, 0, 0, 0},
          "expected state that is whole on each process for new_state mean, "
          "but got shards of 'm.w0'");
  ASSERT_TRUE(succeeds(
      setNewBlocks(session, {BSR_VALUES_ZERO, BSR_STATE_KEPT, 0, 0, 0})));
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Updates by callers: what the runtime has to choose by, and the choices.

#include "Assertions.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace check;

static float *scoresOf(const Session &session, const Step &step,
                       int64_t pattern) {
  std::string name = "w" + std::to_string(pattern);
  return static_cast<float *>(dataOf(
      session, bsr_step_find_buffer(step.get(), BSR_SCORES, name.c_str())));
}

static int64_t blocksOf(const Matrix &m) {
  return (m.rows / m.blockRows) * (m.cols / m.blockCols);
}

/// What a caller finds that updates each matrix as set or as rigl with norm L1.
static void updateByCaller(const Session &session,
                           const std::vector<Matrix> &matrices, double drop,
                           bsr_method method) {
  std::vector<bsr_replacement> replacements;
  std::vector<std::vector<int64_t>> pruned(matrices.size()),
      regrown(matrices.size());
  for (size_t i = 0; i < matrices.size(); ++i) {
    int64_t count = viewOf(session, int64_t(i)).blocks;
    std::vector<int64_t> stored(size_t(count) + 1);
    ASSERT_TRUE(succeeds(
        bsr_session_stored(session.get(), int64_t(i), count, stored.data())));
    std::vector<double> norms(size_t(count) + 1);
    ASSERT_TRUE(succeeds(bsr_session_norms(session.get(), int64_t(i), BSR_L1,
                                           count, norms.data())));
    int64_t goes = std::min(int64_t(drop * double(count) + 0.5),
                            blocksOf(matrices[i]) - count);
    pruned[i].resize(size_t(goes) + 1);
    regrown[i].resize(size_t(goes) + 1);
    ASSERT_TRUE(succeeds(
        bsr_lowest(BSR_F64, count, norms.data(), goes, pruned[i].data())));
    for (int64_t k = 0; k < goes; ++k)
      pruned[i][size_t(k)] = stored[size_t(pruned[i][size_t(k)])];
    auto choose = method == BSR_SET ? bsr_session_choose_absent
                                    : bsr_session_choose_scored;
    ASSERT_TRUE(succeeds(choose(session.get(), int64_t(i), count, stored.data(),
                                goes, regrown[i].data())));
    replacements.push_back(
        {int64_t(i), goes, goes, pruned[i].data(), regrown[i].data()});
  }
  ASSERT_TRUE(succeeds(bsr_session_replace(session.get(), replacements.data(),
                                           int64_t(replacements.size()))));
}

TEST(UpdateTest, ByTheCallerIsThatOfTheRuntime) {
  Numbers numbers(5);
  for (int round = 0; round < 40; ++round) {
    std::vector<Matrix> matrices;
    for (int i = 0; i < 5; ++i) {
      int64_t b = int64_t(1) << numbers.below(4);
      Matrix m = {b * int64_t(numbers.below(20) + 1),
                  b * int64_t(numbers.below(20) + 1), b, b, 1};
      m.slots = int64_t(numbers.below(uint64_t(blocksOf(m)))) + 1;
      m.hasScores = true;
      matrices.push_back(m);
    }
    Step step = load(makeManifest(matrices));
    Session own = start(step, uint64_t(round)),
            other = start(step, uint64_t(round));
    for (const Session *session : {&own, &other}) {
      ASSERT_TRUE(succeeds(bsr_session_initialize(session->get())));
      for (size_t i = 0; i < matrices.size(); ++i)
        ASSERT_TRUE(succeeds(initBuffer(*session, int64_t(9 * i),
                                        round % 2 ? "ones" : "normal(1)")));
    }
    for (bsr_method method : {BSR_SET, BSR_RIGL}) {
      uint64_t kinds = numbers.below(2) ? 3 : 1 << 20, seed = numbers.below(99);
      double drop = double(numbers.below(11)) / 10;
      auto fill = [&](const Session &session, bool withZeros) {
        Numbers some(seed);
        for (size_t i = 0; i < matrices.size(); ++i)
          for (int64_t k = 0; k < blocksOf(matrices[i]); ++k)
            scoresOf(session, step, int64_t(i))[k] =
                withZeros ? 0 : float(some.below(kinds)) - 1;
      };
      for (const Session *session : {&own, &other}) {
        ASSERT_TRUE(succeeds(bsr_session_run_scores(session->get())));
        fill(*session, false);
      }
      std::vector<bsr_pattern_update> rules(matrices.size(),
                                            {method, BSR_L1, drop, 0, 0, 0});
      ASSERT_TRUE(succeeds(
          bsr_session_update(own.get(), rules.data(), int64_t(rules.size()))));
      updateByCaller(other, matrices, drop, method);
      // Rigl of the runtime loses the scores.
      for (const Session *session : {&own, &other})
        fill(*session, true);
      ASSERT_TRUE(contentsOf(own, step) == contentsOf(other, step));
      for (size_t i = 0; i < matrices.size(); ++i) {
        bsr_pattern_statistics one, two;
        ASSERT_TRUE(
            succeeds(bsr_session_statistics(own.get(), int64_t(i), &one)));
        ASSERT_TRUE(
            succeeds(bsr_session_statistics(other.get(), int64_t(i), &two)));
        ASSERT_EQ(one.pruned, two.pruned);
        ASSERT_EQ(one.ever_stored, two.ever_stored);
        ASSERT_EQ(one.newest_pruned, two.newest_pruned);
      }
      ASSERT_EQ(countersOf(own).blocks_pruned, countersOf(other).blocks_pruned);
      ASSERT_EQ(countersOf(own).blocks_regrown,
                countersOf(other).blocks_regrown);
    }
  }
}

TEST(UpdateTest, NormsOfALargeMatrixAreSummedByAllThreads) {
  Step step = load(makeManifest({{2048, 2048, 64, 64, 300}}));
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  auto *values = static_cast<float *>(dataOf(session, 0));
  bsr_pattern_view view = viewOf(session);
  for (int64_t k = 0; k < view.blocks; ++k)
    std::fill_n(values + view.slot[k] * 4096, 4096, float(k % 7) - 3);
  std::vector<double> norms(300);
  ASSERT_TRUE(succeeds(
      bsr_session_norms(session.get(), 0, BSR_L1, view.blocks, norms.data())));
  for (int64_t k = 0; k < 300; ++k)
    ASSERT_EQ(norms[size_t(k)], 4096 * std::fabs(double(k % 7) - 3));
}

TEST(UpdateTest, ScoresMayBeChosenByAgain) {
  std::vector<Matrix> matrices = {{8, 8, 2, 2, 4, "f32", 0.5, true}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  int64_t barred[] = {1, 9, 15}, chosen[] = {7, 7, 7, 7};
  auto choose = [&](int64_t numBarred, int64_t count) {
    return bsr_session_choose_scored(session.get(), 0, numBarred, barred, count,
                                     chosen);
  };
  ASSERT_TRUE(
      fails(choose(3, 3), BSR_INVALID_ARGUMENT,
            "expected an update by scores right after a run with scores, "
            "but got a plain run, a restore, a load or another update "
            "since for pattern 'w0'"));
  ASSERT_TRUE(succeeds(bsr_session_run_scores(session.get())));
  float *scores = scoresOf(session, step, 0);
  for (int64_t block = 0; block < 16; ++block)
    scores[block] = float(block % 5) - 2;
  scores[9] = std::nanf(""); // is barred
  std::vector<float> before(scores, scores + 16);
  for (int again = 0; again < 2; ++again) {
    // Blocks 4 and 14 have score 2; of 3, 8 and 13, which have 1, the first.
    ASSERT_TRUE(succeeds(choose(3, 3)));
    ASSERT_TRUE(std::equal(chosen, chosen + 4, std::data({3, 4, 14, 7})));
  }
  ASSERT_TRUE(std::equal(scores, scores + 9, before.data()));
  ASSERT_TRUE(succeeds(choose(3, 0)));

  ASSERT_TRUE(
      fails(choose(1, 1), BSR_NOT_A_NUMBER,
            "expected a number as the score of block (2, 1) of 'w0', but "
            "got NaN"));
  ASSERT_TRUE(
      fails(choose(3, 14), BSR_INVALID_ARGUMENT,
            "expected at most the 13 blocks that may be chosen, but got 14 "
            "for pattern 'w0'"));
  ASSERT_TRUE(fails(choose(17, 0), BSR_INVALID_ARGUMENT,
                    "expected at most 16 blocks to leave out, but got 17 for "
                    "pattern 'w0'"));
  barred[1] = 1;
  ASSERT_TRUE(
      fails(choose(3, 1), BSR_INVALID_ARGUMENT,
            "expected rising numbers of blocks below 16 to leave out, but "
            "got 1 for pattern 'w0'"));
  ASSERT_TRUE(fails(bsr_session_stored(session.get(), 0, 3, chosen),
                    BSR_INVALID_ARGUMENT,
                    "expected room for 4 stored blocks of 'w0', but got 3"));
}

/// The lowest and the highest of numbers that are among `some`, as a sort has
/// them.
template <typename T>
static void checkChosen(bsr_type type, const std::vector<T> &some) {
  Numbers random(3);
  for (int64_t size : {0, 1, 2, 10, 300, 5000}) {
    std::vector<T> numbers(size_t(size) + 1);
    for (T &number : numbers)
      number = some[random.below(some.size())];
    for (int64_t count : {int64_t(0), size / 3, size - 1, size}) {
      if (count < 0)
        continue;
      for (bool highest : {false, true}) {
        std::vector<int64_t> order(size_t(size), 0);
        std::iota(order.begin(), order.end(), 0);
        // Of equal ones the first come first.
        std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          T one = numbers[size_t(a)], other = numbers[size_t(b)];
          return one == other ? a < b : highest ? other < one : one < other;
        });
        std::sort(order.begin(), order.begin() + count);
        order.resize(size_t(count));
        std::vector<int64_t> places(size_t(count) + 1, -1);
        auto choose = highest ? bsr_highest : bsr_lowest;
        ASSERT_TRUE(
            succeeds(choose(type, size, numbers.data(), count, places.data())));
        ASSERT_EQ(places.back(), -1); // nothing behind them is written
        places.pop_back();
        ASSERT_TRUE(places == order);
      }
    }
  }
}

TEST(UpdateTest, LowestAndHighestAreThoseOfASort) {
  using Double = std::numeric_limits<double>;
  using Float = std::numeric_limits<float>;
  checkChosen<double>(BSR_F64, {-Double::infinity(), Double::lowest(), -1.5,
                                -Double::denorm_min(), -0.0, 0,
                                Double::denorm_min(), 1, 1 + Double::epsilon(),
                                Double::max(), Double::infinity()});
  checkChosen<float>(BSR_F32, {-Float::infinity(), Float::lowest(), -1.5, -0.0f,
                               0, 1, Float::max(), Float::infinity()});
  checkChosen<int64_t>(
      BSR_I64, {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX});
  checkChosen<uint64_t>(BSR_UI64, {0, 1, uint64_t(1) << 63, UINT64_MAX});
  std::vector<uint64_t> many(4000);
  Numbers random(1);
  for (uint64_t &number : many)
    number = random.below(UINT64_MAX);
  checkChosen(BSR_UI64, many);
}

TEST(UpdateTest, ChoiceOfNumbersRefusesWhatAreNone) {
  double numbers[] = {1, std::nan(""), std::nan("")};
  int64_t places[] = {5, 5, 5};
  ASSERT_TRUE(fails(bsr_lowest(BSR_F64, 3, numbers, 1, places),
                    BSR_NOT_A_NUMBER,
                    "expected numbers to choose from, but got NaN at 1"));
  float few[] = {1, std::nanf("")};
  ASSERT_TRUE(fails(bsr_highest(BSR_F32, 2, few, 1, places), BSR_NOT_A_NUMBER,
                    "expected numbers to choose from, but got NaN at 1"));
  for (int64_t count : {-1, 2})
    ASSERT_TRUE(fails(
        bsr_lowest(BSR_F64, 1, numbers, count, places), BSR_INVALID_ARGUMENT,
        "expected a count of at most the 1 numbers to choose from, "
        "but got " +
            std::to_string(count)));
  ASSERT_TRUE(fails(bsr_lowest(BSR_F64, -1, numbers, 0, places),
                    BSR_INVALID_ARGUMENT,
                    "expected a number of numbers from 0, but got -1"));
  ASSERT_TRUE(fails(bsr_lowest(BSR_I8, 1, numbers, 0, places),
                    BSR_INVALID_ARGUMENT,
                    "expected numbers of type f32, f64, i64 or ui64 to choose "
                    "from, but got those of type 5"));
  ASSERT_TRUE(
      fails(bsr_lowest(BSR_F64, 1, nullptr, 0, places), BSR_INVALID_ARGUMENT,
            "expected argument 'numbers' to point somewhere, but got null"));
  ASSERT_EQ(places[0], 5);
}

TEST(UpdateTest, ByTheCallerIsAllOrNone) {
  std::vector<Matrix> matrices = {{8, 8, 2, 2, 8}, {8, 8, 2, 2, 8}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  std::string before = contentsOf(session, step);
  int64_t stored[8];
  ASSERT_TRUE(succeeds(bsr_session_stored(session.get(), 0, 8, stored)));
  int64_t none = 16;
  bsr_replacement replacements[] = {{0, 8, 0, stored, nullptr},
                                    {1, 1, 0, &none, nullptr}};
  ASSERT_TRUE(fails(bsr_session_replace(session.get(), replacements, 2),
                    BSR_INVALID_ARGUMENT,
                    "expected rising numbers below 16 of the blocks of 'w1' to "
                    "prune, but got 16"));
  // Of two that fail, the first is named.
  stored[0] = -1;
  ASSERT_TRUE(fails(bsr_session_replace(session.get(), replacements, 2),
                    BSR_INVALID_ARGUMENT,
                    "expected rising numbers below 16 of the blocks of 'w0' to "
                    "prune, but got -1"));
  bsr_replacement twice[] = {{1, 0, 0, nullptr, nullptr},
                             {1, 0, 0, nullptr, nullptr}};
  ASSERT_TRUE(
      fails(bsr_session_replace(session.get(), twice, 2), BSR_INVALID_ARGUMENT,
            "expected one update of each pattern, but got a second one of "
            "'w1'"));
  bsr_replacement fewer = {1, -1, 2, nullptr, nullptr};
  ASSERT_TRUE(
      fails(bsr_session_replace(session.get(), &fewer, 1), BSR_INVALID_ARGUMENT,
            "expected numbers of blocks from 0, but got -1 to prune and 2 "
            "to regrow"));
  ASSERT_TRUE(fails(bsr_session_replace(session.get(), twice, -1),
                    BSR_INVALID_ARGUMENT,
                    "expected a number of replacements from 0, but got -1"));
  ASSERT_TRUE(contentsOf(session, step) == before);
  ASSERT_EQ(countersOf(session).pattern_updates, 0);
}

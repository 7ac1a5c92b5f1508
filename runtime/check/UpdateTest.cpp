// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prune and regrow, against the definition taken literally.

#include "Assertions.h"
#include "Definition.h"
#include "support/Hash.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <set>

using namespace check;

// Every allocation of the process is counted, the runtime's own too.
static int64_t allocations = 0;
void *operator new(size_t size) {
  ++allocations;
  if (void *memory = std::malloc(size))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

template <typename T>
static T *valuesOf(const Session &session, int64_t buffer) {
  return static_cast<T *>(dataOf(session, buffer));
}

/// An update by set, as `updatePatterns` does.
static bsr_pattern_update setOf(double drop) {
  return {BSR_SET, BSR_L1, drop, 0, 0, 0};
}

static float *scoresOf(const Session &session, const Step &step,
                       int64_t pattern) {
  std::string name = "w" + std::to_string(pattern);
  return valuesOf<float>(
      session, bsr_step_find_buffer(step.get(), BSR_SCORES, name.c_str()));
}

TEST(UpdateTest, IsTheDefinitionOnRandomPatterns) {
  compareRandomUpdates(250,
                       [](const std::vector<Matrix> &matrices, uint64_t seed) {
                         return start(load(makeManifest(matrices)), seed);
                       });
}

TEST(UpdateTest, OfEveryBlockSize) {
  Numbers numbers(2);
  for (int64_t blockRows : {1, 4, 8, 16, 24, 32, 64})
    for (int64_t blockCols : {1, 4, 16, 48, 64}) {
      std::vector<Matrix> matrices = {
          {9 * blockRows, 7 * blockCols, blockRows, blockCols, 21}};
      Step step = load(makeManifest(matrices));
      Session session = start(step);
      ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
      fillSmall(session, matrices[0], 0, numbers);
      Compared compared(session, matrices);
      compared.update({setOf(0.3)});
      compared.update({setOf(1)});
      compared.update({{BSR_GMP, BSR_L2, 0, 5, 0, 0}});
      compared.update({{BSR_SET, BSR_LINF, 0.5, 0, 1, 0}});
    }
}

TEST(UpdateTest, IsTheSameEverywhere) {
  // All norms are equal: the first three blocks go.
  Step step = loadFake();
  Session session = start(step, 42);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  ASSERT_TRUE(succeeds(initBuffer(session, 0, "ones")));
  ASSERT_TRUE(succeeds(updatePatterns(session, 0.5, nullptr)));
  std::ostringstream blocks;
  Matrix matrix = {8, 12, 2, 3, 6};
  for (auto &[place, slot] : Blocks(session, matrix, 0).slots)
    blocks << place.first << place.second << " ";
  ASSERT_EQ(blocks.str(), "02 03 10 13 22 33 ");
}

TEST(UpdateTest, DoesNotDependOnThreads) {
  std::vector<Matrix> matrices;
  for (int i = 0; i < 12; ++i)
    matrices.push_back({16 * (i + 2), 16 * (14 - i), 2, 2, 40 + 10 * i, "f32",
                        0.5, i % 2 == 0});
  Step step = load(makeManifest(matrices));
  Session session = start(step, 7);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  Numbers numbers(8);
  Rules rules;
  for (size_t i = 0; i < matrices.size(); ++i)
    rules.push_back(
        {i % 2 ? BSR_SET : BSR_RIGL, BSR_L1, 0.4, 0, i % 3 == 0, 0});
  Compared compared(session, matrices);
  for (int update = 0; update < 3; ++update) {
    ASSERT_TRUE(succeeds(bsr_session_run_scores(session.get())));
    for (size_t i = 0; i < matrices.size(); i += 2)
      fillScores(session, int64_t(i), numbers);
    compared.update(rules);
  }
  std::ostringstream blocks;
  for (size_t i = 0; i < matrices.size(); ++i)
    for (auto &[place, slot] : Blocks(session, matrices[i], int64_t(i)).slots)
      blocks << place.first << "," << place.second << "," << slot << " ";
  std::string text = blocks.str();
  ASSERT_EQ(sparse_opt::xxh64(text), 6674711057174564922u);
}

TEST(UpdateTest, ByScoresNeedsThoseOfTheLastRun) {
  const std::string needsRun =
      "expected an update by scores right after a run with scores, but got a "
      "plain run, a restore, a load or another update since for pattern 'w0'";
  std::vector<Matrix> matrices = {{8, 8, 2, 2, 8, "f32", 0.5, true}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  bsr_pattern_update rigl = {BSR_RIGL, BSR_L1, 0.5, 0, 0, 0};
  auto update = [&] { return bsr_session_update(session.get(), &rigl, 1); };
  auto run = [&] {
    ASSERT_TRUE(succeeds(bsr_session_run_scores(session.get())));
  };
  ASSERT_TRUE(fails(update(), BSR_INVALID_ARGUMENT, needsRun));

  // The scores lie in the arena, behind what the run writes.
  run();
  float *scores = scoresOf(session, step, 0);
  int32_t *arena = reinterpret_cast<int32_t *>(scores) - 16;
  ASSERT_EQ(*arena, 1);
  ASSERT_EQ(countersOf(session).steps, 1);
  ASSERT_TRUE(succeeds(update()));
  ASSERT_TRUE(fails(update(), BSR_INVALID_ARGUMENT, needsRun));
  run();
  ASSERT_EQ(*arena, 2);
  ASSERT_TRUE(succeeds(bsr_session_make_pattern(session.get(), 0, 5)));
  ASSERT_TRUE(fails(update(), BSR_INVALID_ARGUMENT, needsRun));
  ASSERT_TRUE(succeeds(bsr_session_snapshot(session.get())));
  run();
  ASSERT_TRUE(succeeds(bsr_session_restore(session.get())));
  ASSERT_TRUE(fails(update(), BSR_INVALID_ARGUMENT, needsRun));
  Folder folder;
  ASSERT_TRUE(
      succeeds(bsr_session_save(session.get(), folder.file("c").c_str(), "")));
  run();
  ASSERT_TRUE(
      succeeds(bsr_session_load(session.get(), folder.file("c").c_str())));
  ASSERT_TRUE(fails(update(), BSR_INVALID_ARGUMENT, needsRun));

  // A plain run, of a step that has scores as well.
  Json manifest = fakeManifest();
  manifest["score_norm"] = "l2";
  manifest["arena_bytes"] = 192;
  manifest["buffers"].push_back({{"name", "state.p.w"},
                                 {"kind", "scores"},
                                 {"type", "f32"},
                                 {"shape", {4, 4}},
                                 {"carried", false},
                                 {"pattern", 0},
                                 {"arena_offset", 128}});
  Step other = load(manifest);
  Session both = start(other);
  ASSERT_TRUE(succeeds(bsr_session_initialize(both.get())));
  ASSERT_TRUE(succeeds(bsr_session_run_scores(both.get())));
  ASSERT_TRUE(succeeds(bsr_session_run(both.get())));
  ASSERT_EQ(int(bsr_session_update(both.get(), &rigl, 1)),
            int(BSR_INVALID_ARGUMENT));
  ASSERT_TRUE(succeeds(bsr_session_run_scores(both.get())));
  ASSERT_TRUE(succeeds(bsr_session_update(both.get(), &rigl, 1)));
}

TEST(UpdateTest, ByScoresNeedsAStepWithScores) {
  Step step = loadFake();
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  ASSERT_TRUE(
      fails(bsr_session_run_scores(session.get()), BSR_INVALID_ARGUMENT,
            "expected a step that was compiled with scores of blocks, but "
            "got 'fake', whose manifest has no score_norm"));
  bsr_pattern_update rigl = {BSR_RIGL, BSR_L1, 0.5, 0, 0, 0};
  ASSERT_TRUE(
      fails(bsr_session_update(session.get(), &rigl, 1), BSR_INVALID_ARGUMENT,
            "expected a step that was compiled with scores of blocks, but "
            "got one without for pattern 'state.p.w'"));
}

TEST(UpdateTest, RefusesNaNScoresThatCount) {
  std::vector<Matrix> matrices = {{8, 8, 2, 2, 4, "f32", 0.5, true}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  int32_t rowPtr[] = {0, 1, 1, 3, 4}, colIdx[] = {2, 0, 3, 1};
  bsr_pattern_view view = {4,       rowPtr,  colIdx, nullptr,
                           nullptr, nullptr, nullptr};
  ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &view)));
  ASSERT_TRUE(succeeds(bsr_session_run_scores(session.get())));
  float *scores = scoresOf(session, step, 0);
  scores[13] = std::nanf(""); // of the stored block (3, 1)
  std::string before = contentsOf(session, step);
  bsr_pattern_update rigl = {BSR_RIGL, BSR_L1, 0.25, 0, 1, 0};
  ASSERT_TRUE(
      fails(bsr_session_update(session.get(), &rigl, 1), BSR_NOT_A_NUMBER,
            "expected a number as the score of block (3, 1) of 'w0', but "
            "got NaN"));
  rigl.allow_return = 0;
  scores[14] = std::nanf("");
  ASSERT_TRUE(
      fails(bsr_session_update(session.get(), &rigl, 1), BSR_NOT_A_NUMBER,
            "expected a number as the score of block (3, 2) of 'w0', but "
            "got NaN"));
  scores[14] = 0;
  ASSERT_TRUE(before.substr(0, 128) ==
              contentsOf(session, step).substr(0, 128));
  ASSERT_EQ(countersOf(session).pattern_updates, 0);
  ASSERT_TRUE(succeeds(bsr_session_update(session.get(), &rigl, 1)));
}

TEST(UpdateTest, RefusesRulesOutOfRange) {
  Step step = loadFake();
  Session session = start(step);
  auto refuses = [&](bsr_pattern_update rule, const std::string &what) {
    ASSERT_TRUE(fails(bsr_session_update(session.get(), &rule, 1),
                      BSR_INVALID_ARGUMENT, what + " for pattern 'state.p.w'"));
  };
  refuses({bsr_method(4), BSR_L1, 0, 0, 0, 0},
          "expected a method from 0 to 3, but got 4");
  refuses({BSR_SET, bsr_norm(7), 0, 0, 0, 0},
          "expected a norm from 0 to 3, but got 7");
  refuses({BSR_SET, BSR_L1, 1.25, 0, 0, 0},
          "expected a drop fraction in [0, 1], but got 1.25");
  refuses({BSR_GMP, BSR_L1, 0, -2, 0, 0},
          "expected a number of blocks from 0, but got -2");
  bsr_pattern_update rule = setOf(0.5);
  ASSERT_TRUE(fails(bsr_session_update(session.get(), &rule, 2),
                    BSR_INVALID_ARGUMENT,
                    "expected an update for each of 1 patterns, but got 2"));
  ASSERT_EQ(countersOf(session).pattern_updates, 0);
}

TEST(UpdateTest, AfterGradualPruningKeepsWhatIsLeft) {
  std::vector<Matrix> matrices = {{64, 64, 4, 4, 256}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  Compared compared(session, matrices);
  for (int64_t blocks : {256, 255, 130, 130, 26}) {
    compared.update({{BSR_GMP, BSR_L1, 0, blocks, 0, 0}});
    ASSERT_EQ(viewOf(session).blocks, blocks);
  }
  compared.update({setOf(0.5)});
  ASSERT_EQ(viewOf(session).blocks, 26);
  compared.update({{BSR_GMP, BSR_L1, 0, 0, 0, 0}});
  ASSERT_EQ(viewOf(session).blocks, 0);
  compared.update({setOf(1)});
}

TEST(UpdateTest, TogetherLeavesTheLargestOfAllMatrices) {
  // The second has more blocks in its slots, the third one only; the last is
  // of another group, whose blocks are of another size.
  std::vector<Matrix> matrices = {
      {12, 20, 2, 4, 20}, {16, 24, 2, 4, 48}, {2, 8, 2, 4, 1}, {9, 9, 3, 3, 9}};
  Step step = load(makeManifest(matrices));
  Numbers numbers(5);
  int64_t apart = 0;
  for (int round = 0; round < 40; ++round) {
    Session session = start(step, uint64_t(round));
    ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
    Compared compared(session, matrices);
    for (int64_t blocks : {69, 68, 51, 51, 20, 4, 1}) {
      for (size_t p = 0; p < matrices.size(); ++p)
        fillSmall(session, matrices[p], int64_t(p), numbers);
      auto norm = bsr_norm(numbers.below(4));
      bsr_pattern_update all = {BSR_GMP, norm, 0, blocks, 0, 2};
      bsr_pattern_update last = {BSR_GMP, BSR_L1, 0, blocks, 0, 1};
      compared.update({all, all, all, last});
      int64_t left[3];
      for (int64_t p : {0, 1, 2}) {
        left[p] = viewOf(session, p).blocks;
        ASSERT_GE(left[p], 1);
      }
      ASSERT_EQ(left[0] + left[1] + left[2], std::max<int64_t>(blocks, 3));
      ASSERT_EQ(viewOf(session, 3).blocks, std::min<int64_t>(blocks, 9));
      apart += std::abs(left[1] * 20 - left[0] * 48) > 48;
    }
  }
  ASSERT_GT(apart, 10); // densities are not those of each matrix for itself
}

TEST(UpdateTest, RefusesUpdatesTogether) {
  Step step = load(makeManifest({{8, 8, 2, 2, 16}, {8, 8, 2, 4, 8}}));
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  auto refuses = [&](bsr_pattern_update first, bsr_pattern_update second,
                     const std::string &what) {
    bsr_pattern_update rules[] = {first, second};
    ASSERT_TRUE(fails(bsr_session_update(session.get(), rules, 2),
                      BSR_INVALID_ARGUMENT, what));
  };
  bsr_pattern_update gmp = {BSR_GMP, BSR_L1, 0, 7, 0, 1};
  refuses(gmp, gmp,
          "expected blocks of one size to rank together, but got 2x2 of 'w0' "
          "and 2x4 of 'w1'");
  refuses({BSR_SET, BSR_L1, 0, 0, 0, 1}, gmp,
          "expected 0 but for gmp, or a number above it, of updates together, "
          "but got 1 for pattern 'w0'");
  refuses({BSR_GMP, BSR_L1, 0, 7, 0, -1}, gmp,
          "expected 0 but for gmp, or a number above it, of updates together, "
          "but got -1 for pattern 'w0'");
  Step alike = load(makeManifest({{8, 8, 2, 2, 16}, {4, 8, 2, 2, 8}}));
  Session other = start(alike);
  ASSERT_TRUE(succeeds(bsr_session_initialize(other.get())));
  bsr_pattern_update rules[] = {gmp, {BSR_GMP, BSR_L2, 0, 7, 0, 1}};
  ASSERT_TRUE(fails(bsr_session_update(other.get(), rules, 2),
                    BSR_INVALID_ARGUMENT,
                    "expected one norm and one number of blocks of updates "
                    "together, but got 0 and 7 for 'w0', and 1 and 7 for "
                    "'w1'"));
  // A NaN of any of them is found before anything has changed.
  valuesOf<float>(other, 9)[4] = std::nanf("");
  rules[1] = gmp;
  ASSERT_TRUE(fails(bsr_session_update(other.get(), rules, 2), BSR_NOT_A_NUMBER,
                    "expected numbers in block (0, 1) of 'w1', but got NaN"));
  ASSERT_EQ(viewOf(other, 0).blocks, 16);
}

TEST(UpdateTest, OfAFullMatrixWithReturnChangesNothing) {
  std::vector<Matrix> matrices = {{8, 8, 2, 2, 16}, {2, 2, 2, 2, 1}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  std::string before = contentsOf(session, step);
  Compared compared(session, matrices);
  bsr_pattern_update rule = {BSR_SET, BSR_L1, 1, 0, 1, 0};
  compared.update({rule, rule});
  ASSERT_TRUE(before == contentsOf(session, step));
}

TEST(UpdateTest, WithReturnChoosesEvenly) {
  // 4 x 4 blocks, 6 stored, of which 3 go: 3 of the 13 others come.
  std::vector<Matrix> matrices = {{4, 4, 1, 1, 6}};
  Step step = load(makeManifest(matrices));
  int counts[16] = {};
  for (int seed = 0; seed < 4000; ++seed) {
    Session session = start(step, uint64_t(seed));
    int32_t rowPtr[] = {0, 2, 3, 5, 6}, colIdx[] = {0, 2, 1, 0, 3, 3};
    bsr_pattern_view view = {6,       rowPtr,  colIdx, nullptr,
                             nullptr, nullptr, nullptr};
    ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &view)));
    for (int slot = 0; slot < 6; ++slot)
      valuesOf<float>(session, 0)[slot] = float(slot);
    bsr_pattern_update rule = {BSR_SET, BSR_L1, 0.5, 0, 1, 0};
    ASSERT_TRUE(succeeds(bsr_session_update(session.get(), &rule, 1)));
    for (auto &[place, slot] : Blocks(session, matrices[0], 0).slots)
      ++counts[4 * place.first + place.second];
  }
  for (int b = 0; b < 16; ++b) {
    bool kept = b == 8 || b == 11 || b == 15;
    if (kept)
      ASSERT_EQ(counts[b], 4000);
    else
      ASSERT_LT(std::abs(counts[b] - 923), 120); // 4.5 standard deviations
  }
}

TEST(UpdateTest, OfEqualNormsPrunesTheFirst) {
  std::vector<Matrix> matrices = {{8, 8, 1, 1, 30}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  ASSERT_TRUE(succeeds(initBuffer(session, 0, "constant(-2)")));
  Blocks before(session, matrices[0], 0);
  ASSERT_TRUE(succeeds(updatePatterns(session, 0.5, nullptr)));
  Blocks after(session, matrices[0], 0);
  int64_t index = 0;
  for (auto &[place, slot] : before.slots)
    ASSERT_EQ(after.slots.count(place), size_t(index++ >= 15));
}

TEST(UpdateTest, IsCappedByTheAbsentBlocks) {
  for (int64_t slots : {60, 63, 64, 70}) {
    std::vector<Matrix> matrices = {{8, 8, 1, 1, slots}};
    Step step = load(makeManifest(matrices));
    Session session = start(step);
    ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
    int64_t pruned;
    ASSERT_TRUE(succeeds(updatePatterns(session, 0.5, &pruned)));
    ASSERT_EQ(pruned, std::max<int64_t>(64 - slots, 0));
  }
}

TEST(UpdateTest, OfNothingChangesNothing) {
  Step step = load(makeManifest({{8, 8, 2, 2, 8}}));
  Session session = start(step), empty = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  std::string before = contentsOf(session, step);
  int64_t pruned = -1;
  ASSERT_TRUE(succeeds(updatePatterns(session, 0, &pruned)));
  ASSERT_EQ(pruned, 0);
  ASSERT_TRUE(before == contentsOf(session, step));
  ASSERT_TRUE(succeeds(updatePatterns(empty, 1, &pruned)));
  ASSERT_EQ(pruned, 0);
  ASSERT_EQ(countersOf(empty).pattern_updates, 1);
}

TEST(UpdateTest, RefusesFractionsOutOfRange) {
  Step step = loadFake();
  Session session = start(step);
  for (auto [drop, text] :
       {std::pair{-0.1, "-0.1"}, {1.5, "1.5"}, {std::nan(""), "nan"}})
    ASSERT_TRUE(fails(updatePatterns(session, drop, nullptr),
                      BSR_INVALID_ARGUMENT,
                      "expected a drop fraction in [0, 1], but got " +
                          std::string(text) + " for pattern 'state.p.w'"));
}

template <typename T>
static void checkNaN(const char *type, T nan, T infinity, T one) {
  std::vector<Matrix> matrices = {{8, 8, 2, 2, 4, type}, {8, 8, 2, 2, 4, type}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  int32_t rowPtr[] = {0, 1, 1, 3, 4}, colIdx[] = {2, 0, 3, 1};
  int32_t slot[] = {3, 1, 0, 2};
  bsr_pattern_view view = {4, rowPtr, colIdx, slot, nullptr, nullptr, nullptr};
  for (int64_t p : {0, 1}) {
    ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), p, &view)));
    std::fill_n(valuesOf<T>(session, 9 * p), 16, one);
  }
  // An infinite norm ranks last; NaN is an error, and nothing has changed, not
  // even in the matrix before. NaN in a moment is no concern of an update.
  valuesOf<T>(session, 9)[5] = nan;
  valuesOf<T>(session, 1)[0] = nan;
  std::string before = contentsOf(session, step);
  ASSERT_TRUE(fails(updatePatterns(session, 0.5, nullptr), BSR_NOT_A_NUMBER,
                    "expected numbers in block (2, 0) of 'w1', but got NaN"));
  for (int norm = BSR_L1; norm <= BSR_MEAN; ++norm) {
    bsr_pattern_update rule = {BSR_SET, bsr_norm(norm), 0.5, 0, 0, 0};
    Rules rules = {rule, rule};
    ASSERT_TRUE(fails(bsr_session_update(session.get(), rules.data(), 2),
                      BSR_NOT_A_NUMBER,
                      "expected numbers in block (2, 0) of 'w1', but got NaN"));
  }
  ASSERT_TRUE(before == contentsOf(session, step));
  ASSERT_EQ(countersOf(session).pattern_updates, 0);
  valuesOf<T>(session, 9)[5] = infinity;
  ASSERT_TRUE(succeeds(updatePatterns(session, 0.75, nullptr)));
  Blocks after(session, matrices[1], 1);
  ASSERT_EQ(after.slots.count({2, 0}), 1u);
}

TEST(UpdateTest, RefusesNaNOfEveryType) {
  using Float = std::numeric_limits<float>;
  using Double = std::numeric_limits<double>;
  checkNaN<float>("f32", Float::quiet_NaN(), -Float::infinity(), 1);
  checkNaN<double>("f64", Double::quiet_NaN(), Double::infinity(), 1);
  checkNaN<uint16_t>("f16", 0x7e01, 0xfc00, 0x3c00);
  checkNaN<uint16_t>("bf16", 0xff81, 0x7f80, 0x3f80);
}

TEST(UpdateTest, RanksEveryTypeByValue) {
  // Rising magnitudes, with subnormal and negative ones between.
  const uint16_t halves[] = {0x8000, 0x0001, 0x83ff, 0x0400,
                             0xbbff, 0x3c00, 0xbc01, 0x7bff};
  const uint16_t bfloats[] = {0x8000, 0x0001, 0x807f, 0x0080,
                              0xbf7f, 0x3f80, 0xbf81, 0x7f7f};
  for (bool isHalf : {true, false}) {
    std::vector<Matrix> matrices = {{4, 4, 1, 1, 8, isHalf ? "f16" : "bf16"}};
    Step step = load(makeManifest(matrices));
    for (int count = 1; count < 8; ++count) {
      Session session = start(step, uint64_t(count));
      ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
      // Slot 3 k mod 8 gets the k-th lowest.
      for (int k = 0; k < 8; ++k)
        valuesOf<uint16_t>(session, 0)[3 * k % 8] =
            (isHalf ? halves : bfloats)[k];
      Blocks before(session, matrices[0], 0);
      ASSERT_TRUE(succeeds(updatePatterns(session, count / 8.0, nullptr)));
      Blocks after(session, matrices[0], 0);
      for (auto &[place, slot] : before.slots)
        ASSERT_EQ(after.slots.count(place), size_t(slot * 3 % 8 >= count));
    }
  }
}

TEST(UpdateTest, NormsAreExactEnoughToOrder) {
  // In f32 these sums would be equal: 2^24 + 1 against 2^24.
  std::vector<Matrix> matrices = {{2, 4, 1, 2, 2}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  int32_t rowPtr[] = {0, 2, 2}, colIdx[] = {0, 1};
  bsr_pattern_view view = {2,       rowPtr,  colIdx, nullptr,
                           nullptr, nullptr, nullptr};
  ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &view)));
  const float values[] = {16777216, 1, 16777216, 0};
  std::copy_n(values, 4, valuesOf<float>(session, 0));
  ASSERT_TRUE(succeeds(updatePatterns(session, 0.5, nullptr)));
  Blocks after(session, matrices[0], 0);
  ASSERT_EQ(after.slots.count({0, 0}), 1u);
  ASSERT_EQ(after.slots.count({0, 1}), 0u);
}

TEST(UpdateTest, ChoicesAreEven) {
  // 4 x 4 blocks, 6 stored, 3 regrown among the 10 absent ones.
  std::vector<Matrix> matrices = {{4, 4, 1, 1, 6}};
  Step step = load(makeManifest(matrices));
  int counts[16] = {};
  bool initial[16] = {};
  for (int seed = 0; seed < 4000; ++seed) {
    Session session = start(step, uint64_t(seed));
    int32_t rowPtr[] = {0, 2, 3, 5, 6}, colIdx[] = {0, 2, 1, 0, 3, 3};
    bsr_pattern_view view = {6,       rowPtr,  colIdx, nullptr,
                             nullptr, nullptr, nullptr};
    ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &view)));
    for (auto &[place, slot] : Blocks(session, matrices[0], 0).slots)
      initial[4 * place.first + place.second] = true;
    ASSERT_TRUE(succeeds(updatePatterns(session, 0.5, nullptr)));
    for (auto &[place, slot] : Blocks(session, matrices[0], 0).slots)
      ++counts[4 * place.first + place.second];
  }
  for (int b = 0; b < 16; ++b)
    if (!initial[b])
      ASSERT_LT(std::abs(counts[b] - 1200), 130); // 4.5 standard deviations
}

TEST(UpdateTest, IsKeyedBySeedNameAndNumber) {
  std::vector<Matrix> matrices = {{32, 32, 1, 1, 200}, {32, 32, 1, 1, 200}};
  Step step = load(makeManifest(matrices));
  auto run = [&](uint64_t seed, int updates) {
    Session session = start(step, seed);
    int32_t rowPtr[33], colIdx[200];
    for (int k = 0; k < 200; ++k)
      colIdx[k] = k % 32;
    for (int r = 0; r <= 32; ++r)
      rowPtr[r] = std::min(32 * r, 200);
    bsr_pattern_view view = {200,     rowPtr,  colIdx, nullptr,
                             nullptr, nullptr, nullptr};
    for (int u = 0; u < updates; ++u)
      for (int64_t p : {0, 1}) {
        if (p == 0 && u)
          require(updatePatterns(session, 0.5, nullptr));
        require(bsr_session_set_pattern(session.get(), p, &view));
      }
    require(updatePatterns(session, 0.5, nullptr));
    return std::pair{Blocks(session, matrices[0], 0).slots,
                     Blocks(session, matrices[1], 1).slots};
  };
  ASSERT_TRUE(run(1, 1) == run(1, 1));
  ASSERT_TRUE(run(1, 1).first != run(2, 1).first);
  ASSERT_TRUE(run(1, 1).first != run(1, 1).second);
  ASSERT_TRUE(run(1, 1).first != run(1, 2).first);
}

TEST(UpdateTest, IsCountedAndAllocatesNothing) {
  std::vector<Matrix> matrices = {{64, 64, 4, 4, 100}, {64, 32, 1, 1, 500}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  std::vector<void *> addresses;
  for (int64_t i = 0; i < bsr_step_num_buffers(step.get()); ++i)
    addresses.push_back(dataOf(session, i));
  Rules rules = {setOf(0.25), setOf(0.25)};
  int64_t before = allocations;
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(bsr_session_update(session.get(), rules.data(), 2) == BSR_OK);
  ASSERT_EQ(allocations, before);
  bsr_counters counters = countersOf(session);
  ASSERT_EQ(counters.pattern_updates, 10);
  ASSERT_EQ(counters.blocks_pruned, 10 * (25 + 125));
  ASSERT_EQ(counters.blocks_regrown, 10 * (25 + 125));
  ASSERT_EQ(counters.reallocations, 0);
  ASSERT_EQ(counters.recompilations, 0);
  ASSERT_EQ(counters.allocations, 2);
  for (size_t i = 0; i < addresses.size(); ++i)
    ASSERT_EQ(addresses[i], dataOf(session, int64_t(i)));
}

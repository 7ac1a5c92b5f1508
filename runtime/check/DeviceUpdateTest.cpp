// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Updates that a GPU does by itself, beside the definition, and beside the
// processor's: the same patterns, values and counts, bit for bit. These tests
// need a driver of NVIDIA's, or that of the tests.

#include "Assertions.h"
#include "Definition.h"
#include "base/Element.h"
#include "session/Session.h"
#include <cmath>
#include <cstring>
#include <limits>

using namespace check;

/// The manifest of a step for a GPU that does nothing.
static Json forGPU(const std::vector<Matrix> &matrices) {
  Json manifest = makeManifest(matrices);
  manifest["chip"] = "sm_80";
  manifest["launches"] = Json::array();
  return manifest;
}

/// A session of `step` on a GPU.
static Session startOnGPU(const Step &step, uint64_t seed) {
  bsr_session *made = nullptr;
  require(bsr_session_create(step.get(), "cuda", seed, &made));
  return {made, bsr_session_destroy};
}

namespace {
/// Two sessions of one seed, on the processor and on a GPU, of a step that does
/// nothing.
class Pair {
public:
  Pair(const std::vector<Matrix> &matrices, uint64_t seed)
      : matrices(matrices), hostStep(load(makeManifest(matrices))),
        gpuStep(load(forGPU(matrices))), host(start(hostStep, seed)),
        gpu(startOnGPU(gpuStep, seed)) {}

  void makePattern(int64_t pattern, int64_t blocks) {
    for (const Session *session : {&host, &gpu})
      ASSERT_TRUE(
          succeeds(bsr_session_make_pattern(session->get(), pattern, blocks)));
  }

  /// Writes to a buffer of both.
  void write(int64_t buffer, const std::vector<char> &bytes) {
    for (const Session *session : {&host, &gpu})
      ASSERT_TRUE(succeeds(bsr_session_write(
          session->get(), buffer, 0, int64_t(bytes.size()), bytes.data())));
  }

  /// Fills the weight and the moments of a matrix with small numbers, so that
  /// there are ties, or with many different ones.
  void fillValues(int64_t pattern, Numbers &numbers) {
    const Matrix &m = matrices[size_t(pattern)];
    bsr_type type = gpu->manifest().buffers[size_t(9 * pattern)].type;
    int64_t size = m.slots * m.blockRows * m.blockCols;
    uint64_t kinds = numbers.below(2) ? 5 : 4000;
    for (int64_t buffer = 9 * pattern; buffer < 9 * pattern + 3; ++buffer) {
      std::vector<char> bytes(size_t(size * bsr_type_bytes(type)));
      for (int64_t i = 0; i < size; ++i)
        sparse_opt::storeElement(type, bytes.data(), i,
                                 (double(numbers.below(kinds)) - 2) / 7);
      write(buffer, bytes);
    }
  }

  /// Fills the scores of a matrix, of which the run before made none.
  void fillScores(int64_t pattern, Numbers &numbers) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const float some[] = {0, -0.0f, 1, 2.5f, 1e-42f, -3, infinity, -infinity};
    const sparse_opt::Pattern &known =
        gpu->manifest().patterns[size_t(pattern)];
    std::vector<float> scores(size_t(known.allBlocks()));
    bool isAny = numbers.below(3) == 0;
    uint64_t kinds = numbers.below(4) ? 8 : 1;
    for (float &score : scores)
      score = isAny ? float(numbers.below(1 << 24)) - 1000
                    : some[numbers.below(kinds)];
    std::vector<char> bytes(scores.size() * sizeof(float));
    std::memcpy(bytes.data(), scores.data(), bytes.size());
    write(known.scores, bytes);
  }

  void runScores() {
    for (const Session *session : {&host, &gpu})
      ASSERT_TRUE(succeeds(bsr_session_run_scores(session->get())));
  }

  void update(const Rules &rules) {
    for (const Session *session : {&host, &gpu})
      ASSERT_TRUE(succeeds(bsr_session_update(session->get(), rules.data(),
                                              int64_t(rules.size()))));
    compare();
  }

  /// The same statuses and sentences, and nothing changed.
  void refuse(const Rules &rules, const std::string &sentence) {
    for (const Session *session : {&host, &gpu})
      ASSERT_TRUE(fails(bsr_session_update(session->get(), rules.data(),
                                           int64_t(rules.size())),
                        BSR_NOT_A_NUMBER, sentence));
    compare();
  }

  void compare() {
    for (int64_t p = 0; p < int64_t(matrices.size()); ++p) {
      const Matrix &m = matrices[size_t(p)];
      bsr_pattern_view here = viewOf(host, p), copy = viewOf(gpu, p);
      ASSERT_EQ(copy.blocks, here.blocks);
      int64_t sizes[] = {m.rows / m.blockRows + 1, here.blocks, here.blocks,
                         m.cols / m.blockCols + 1, here.blocks, here.blocks};
      const int32_t *arrays[] = {here.row_ptr, here.col_idx, here.slot,
                                 here.col_ptr, here.row_idx, here.slot_t},
                    *copies[] = {copy.row_ptr, copy.col_idx, copy.slot,
                                 copy.col_ptr, copy.row_idx, copy.slot_t};
      for (int64_t i = 0; i < 6; ++i) {
        std::vector<int32_t> there(size_t(sizes[i]) + 1, -1);
        ASSERT_TRUE(succeeds(bsr_session_read(gpu.get(), 9 * p + 3 + i, 0,
                                              4 * sizes[i], there.data())));
        for (int64_t k = 0; k < sizes[i]; ++k) {
          ASSERT_EQ(there[size_t(k)], arrays[i][k]);
          ASSERT_EQ(copies[i][k], arrays[i][k]);
        }
      }
      for (int64_t buffer = 9 * p; buffer < 9 * p + 3; ++buffer) {
        std::vector<char> there(
            size_t(gpu->manifest().buffers[size_t(buffer)].bytes));
        ASSERT_TRUE(succeeds(bsr_session_read(
            gpu.get(), buffer, 0, int64_t(there.size()), there.data())));
        ASSERT_FALSE(
            std::memcmp(there.data(), dataOf(host, buffer), there.size()));
      }
      bsr_pattern_statistics ours, theirs;
      ASSERT_TRUE(succeeds(bsr_session_statistics(host.get(), p, &ours)));
      ASSERT_TRUE(succeeds(bsr_session_statistics(gpu.get(), p, &theirs)));
      ASSERT_FALSE(std::memcmp(&ours, &theirs, sizeof ours));
    }
    bsr_counters ours = countersOf(host), theirs = countersOf(gpu);
    ASSERT_EQ(theirs.pattern_updates, ours.pattern_updates);
    ASSERT_EQ(theirs.blocks_pruned, ours.blocks_pruned);
    ASSERT_EQ(theirs.blocks_regrown, ours.blocks_regrown);
    ASSERT_EQ(theirs.reallocations, int64_t(0));
  }

  const std::vector<Matrix> matrices;

private:
  Step hostStep, gpuStep;

public:
  Session host, gpu;
};
} // namespace

/// Any matrix of at most so many rows and columns of blocks.
static Matrix anyMatrix(int64_t most, Numbers &numbers) {
  static const char *const types[] = {"f32", "bf16", "f16", "f64"};
  Matrix m;
  m.blockRows = int64_t(numbers.below(5)) + 1;
  m.blockCols = int64_t(numbers.below(5)) + 1;
  m.rows = m.blockRows * int64_t(numbers.below(uint64_t(most)) + 1);
  m.cols = m.blockCols * int64_t(numbers.below(uint64_t(most)) + 1);
  int64_t all = (m.rows / m.blockRows) * (m.cols / m.blockCols);
  m.slots = int64_t(numbers.below(uint64_t(all) + 5)) + 1;
  m.type = types[numbers.below(4)];
  m.hasScores = true;
  return m;
}

/// Four updates in a row, of random patterns.
static void compareUpdates(Pair &pair, Numbers &numbers) {
  auto size = int64_t(pair.matrices.size());
  for (int64_t p = 0; p < size; ++p) {
    const Matrix &m = pair.matrices[size_t(p)];
    int64_t all = (m.rows / m.blockRows) * (m.cols / m.blockCols);
    pair.makePattern(
        p, int64_t(numbers.below(uint64_t(std::min(m.slots, all)) + 1)));
    pair.fillValues(p, numbers);
  }
  for (int update = 0; update < 4; ++update) {
    Rules rules;
    for (const Matrix &m : pair.matrices)
      rules.push_back(anyRule(m, numbers));
    pair.runScores();
    for (int64_t p = 0; p < size; ++p)
      pair.fillScores(p, numbers);
    pair.update(rules);
    pair.fillValues(int64_t(numbers.below(uint64_t(size))), numbers);
  }
}

TEST(GPUTest, UpdatesAreTheDefinitionOnRandomPatterns) {
  compareRandomUpdates(30,
                       [](const std::vector<Matrix> &matrices, uint64_t seed) {
                         return startOnGPU(load(forGPU(matrices)), seed);
                       });
}

TEST(GPUTest, UpdatesAreThoseOfTheProcessor) {
  Numbers numbers(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<Matrix> matrices;
    for (int i = 0; i < 3; ++i)
      matrices.push_back(anyMatrix(12, numbers));
    Pair pair(matrices, numbers.below(1000));
    compareUpdates(pair, numbers);
  }
}

TEST(GPUTest, UpdatesOfMoreBlocksThanThreadsAreThoseOfTheProcessor) {
  Numbers numbers(8);
  for (auto [rows, cols] :
       {std::pair<int64_t, int64_t>{70, 90}, {3, 2100}, {1500, 3}}) {
    Matrix m{rows, cols, 1, 1, rows * cols / 2, "f32", 0.5, true};
    Pair pair({m}, 5);
    compareUpdates(pair, numbers);
    for (bsr_method method : {BSR_SET, BSR_RIGL})
      for (int32_t returns : {0, 1}) {
        pair.makePattern(0, m.slots);
        pair.fillValues(0, numbers);
        pair.runScores();
        pair.fillScores(0, numbers);
        pair.update({{method, BSR_L2, 0.6, 0, returns, 0}});
      }
  }
}

TEST(GPUTest, UpdatesInGroupsAreTheSame) {
  Numbers numbers(9);
  for (int round = 0; round < 3; ++round) {
    std::vector<Matrix> matrices;
    for (int i = 0; i < 4; ++i)
      matrices.push_back(anyMatrix(9, numbers));
    Pair pair(matrices, numbers.below(1000));
    // Each pattern is a group: no two fit.
    pair.gpu->roomBytes = 1;
    compareUpdates(pair, numbers);
  }
}

TEST(GPUTest, NewBlocksAreThoseOfTheProcessor) {
  Numbers numbers(10);
  for (bsr_new_state state : {BSR_STATE_FIRST, BSR_STATE_MEAN, BSR_STATE_KEPT})
    for (bsr_new_values values : {BSR_VALUES_ZERO, BSR_VALUES_RANDOM})
      for (bool inGroups : {false, true}) {
        std::vector<Matrix> matrices;
        for (int i = 0; i < 3; ++i)
          matrices.push_back(anyMatrix(9, numbers));
        Pair pair(matrices, numbers.below(1000));
        if (inGroups)
          pair.gpu->roomBytes = 1;
        bsr_new_blocks start = {values, state, 0.5, 0, 0};
        for (const Session *session : {&pair.host, &pair.gpu})
          for (int64_t p : {0, 1, 2})
            ASSERT_TRUE(succeeds(
                bsr_session_set_new_blocks(session->get(), p, &start)));
        compareUpdates(pair, numbers);
      }
}

TEST(GPUTest, UpdatesRankBlocksOnce) {
  std::vector<Matrix> matrices(2, {8, 8, 2, 2, 16});
  Pair pair(matrices, 3);
  // Each pattern is a group. test/Runtime/gpu.test has the number of launches.
  pair.gpu->roomBytes = 1;
  Numbers numbers(4);
  for (int64_t p : {0, 1}) {
    pair.makePattern(p, 8);
    pair.fillValues(p, numbers);
  }
  pair.update(Rules(2, {BSR_SET, BSR_L1, 0.5, 0, 0, 0}));
}

TEST(GPUTest, UpdatesTogetherAreThoseOfTheProcessor) {
  std::vector<Matrix> matrices = {{8, 12, 2, 2, 16}, {6, 8, 2, 2, 12}};
  Pair pair(matrices, 3);
  Numbers numbers(6);
  for (int64_t p : {0, 1}) {
    pair.makePattern(p, 12);
    pair.fillValues(p, numbers);
  }
  for (int64_t blocks : {17, 9, 1})
    pair.update(Rules(2, {BSR_GMP, BSR_L2, 0, blocks, 0, 1}));
}

TEST(GPUTest, UpdatesRefuseWhatTheProcessorRefuses) {
  std::vector<Matrix> matrices(2, {6, 10, 2, 2, 8, "f32", 0.5, true});
  Pair pair(matrices, 3);
  Numbers numbers(4);
  for (int64_t p : {0, 1}) {
    pair.makePattern(p, 7);
    pair.fillValues(p, numbers);
  }
  auto prepare = [&] {
    pair.runScores();
    for (int64_t p : {0, 1})
      pair.fillScores(p, numbers);
  };
  auto place = [&](int64_t p, int64_t block) {
    return "(" + std::to_string(block / 5) + ", " + std::to_string(block % 5) +
           ") of 'w" + std::to_string(p) + "', but got NaN";
  };
  Rules rules(2, {BSR_RIGL, BSR_L1, 0.5, 0, 0, 0});
  // Of a stored block a score that is NaN matters if blocks may return.
  bsr_pattern_view view = viewOf(pair.host, 1);
  std::vector<bool> isStored(15);
  for (int64_t r = 0; r < 3; ++r)
    for (int32_t k = view.row_ptr[r]; k < view.row_ptr[r + 1]; ++k)
      isStored[size_t(5 * r + view.col_idx[k])] = true;
  const auto scores = int64_t(pair.gpu->manifest().patterns[1].scores);
  auto writeScore = [&](int64_t block, float score) {
    for (const Session *session : {&pair.host, &pair.gpu})
      ASSERT_TRUE(succeeds(
          bsr_session_write(session->get(), scores, 4 * block, 4, &score)));
  };
  for (bool stored : {true, false}) {
    prepare();
    int64_t block = 14;
    while (isStored[size_t(block)] != stored)
      --block;
    writeScore(block, NAN);
    for (int32_t returns : {1, 0}) {
      rules[1].allow_return = returns;
      if (stored && !returns)
        continue;
      pair.refuse(rules,
                  "expected a number as the score of block " + place(1, block));
    }
  }
  // Of weights the first in row order, of patterns the first.
  float nan = NAN;
  for (int64_t p : {1, 0}) {
    for (int64_t k : {5, 3, 6}) {
      bsr_pattern_view own = viewOf(pair.host, p);
      for (const Session *session : {&pair.host, &pair.gpu})
        ASSERT_TRUE(succeeds(bsr_session_write(session->get(), 9 * p,
                                               16 * own.slot[k] + 8, 4, &nan)));
    }
    bsr_pattern_view own = viewOf(pair.host, p);
    int64_t row = 0;
    while (own.row_ptr[row + 1] <= 3)
      ++row;
    prepare();
    pair.refuse(
        {{BSR_SET, BSR_LINF, 0.5, 0, 0, 0}, {BSR_SET, BSR_L2, 0, 0, 0, 0}},
        "expected numbers in block " + place(p, 5 * row + own.col_idx[3]));
  }
}

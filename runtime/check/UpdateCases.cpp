// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prune and regrow, against the definition taken literally.

#include "Check.h"
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

namespace {
using Place = std::pair<int64_t, int64_t>;

/// A matrix of a session, block by block.
struct Blocks {
  std::map<Place, int32_t> slots; // of the stored blocks, row by row

  Blocks(const Session &session, const Matrix &matrix, int64_t pattern) {
    bsr_pattern_view view = viewOf(session, pattern);
    for (int64_t r = 0; r < matrix.rows / matrix.blockRows; ++r)
      for (int32_t k = view.row_ptr[r]; k < view.row_ptr[r + 1]; ++k)
        slots[{r, view.col_idx[k]}] = view.slot[k];
  }
};
} // namespace

template <typename T>
static T *valuesOf(const Session &session, int64_t buffer) {
  return static_cast<T *>(bsr_session_buffer(session.get(), buffer));
}

/// Fills the weight and the moments of matrix `pattern` with small integers, so
/// that there are ties and every sum is exact.
static void fillSmall(const Session &session, const Matrix &matrix,
                      int64_t pattern, Numbers &numbers) {
  int64_t size = matrix.slots * matrix.blockRows * matrix.blockCols;
  for (int64_t buffer = 9 * pattern; buffer < 9 * pattern + 3; ++buffer)
    for (int64_t i = 0; i < size; ++i)
      valuesOf<float>(session, buffer)[i] = float(numbers.below(7)) - 3;
}

/// Updates once and compares with the definition.
static void checkUpdate(const Session &session,
                        const std::vector<Matrix> &matrices, double drop) {
  struct Before {
    Blocks blocks;
    std::vector<float> values[3];
  };
  std::vector<Before> before;
  for (size_t p = 0; p < matrices.size(); ++p) {
    const Matrix &m = matrices[p];
    before.push_back({Blocks(session, m, int64_t(p)), {}});
    for (int b = 0; b < 3; ++b) {
      float *data = valuesOf<float>(session, int64_t(9 * p + b));
      before.back().values[b].assign(data, data + m.slots * m.blockRows *
                                                      m.blockCols);
    }
  }
  int64_t pruned = -1;
  REQUIRE_OK(bsr_session_update_patterns(session.get(), drop, &pruned));
  REQUIRE_OK(bsr_session_check_patterns(session.get()));

  int64_t expectedPruned = 0;
  for (size_t p = 0; p < matrices.size(); ++p) {
    const Matrix &m = matrices[p];
    const Blocks &old = before[p].blocks;
    int64_t size = m.blockRows * m.blockCols;
    int64_t all = (m.rows / m.blockRows) * (m.cols / m.blockCols);
    int64_t stored = int64_t(old.slots.size());
    int64_t count =
        std::min(int64_t(std::floor(drop * stored + 0.5)), all - stored);
    expectedPruned += count;

    // Rank by norm, and equal ones by place.
    std::vector<std::pair<double, Place>> ranked;
    for (auto &[place, slot] : old.slots) {
      double norm = 0;
      for (int64_t i = 0; i < size; ++i)
        norm += std::fabs(before[p].values[0][slot * size + i]);
      ranked.push_back({norm, place});
    }
    std::sort(ranked.begin(), ranked.end());
    std::map<Place, int32_t> expected = old.slots;
    std::set<Place> gone;
    for (int64_t k = 0; k < count; ++k)
      gone.insert(ranked[k].second);
    std::vector<int32_t> freed;
    for (const Place &place : gone) {
      freed.push_back(old.slots.at(place));
      expected.erase(place);
    }

    // The random blocks are new, and take the freed slots in order.
    Blocks now(session, m, int64_t(p));
    size_t next = 0;
    for (auto &[place, slot] : now.slots) {
      if (old.slots.count(place))
        continue;
      REQUIRE(next < freed.size());
      expected[place] = freed[next++];
    }
    REQUIRE_EQUAL(int64_t(next), count);
    REQUIRE(now.slots == expected);

    for (int b = 0; b < 3; ++b) {
      std::vector<float> values = before[p].values[b];
      for (int32_t slot : freed)
        std::fill_n(values.begin() + slot * size, size, 0.0f);
      REQUIRE(std::equal(values.begin(), values.end(),
                         valuesOf<float>(session, int64_t(9 * p + b))));
    }
  }
  REQUIRE_EQUAL(pruned, expectedPruned);
}

CASE(update_is_the_definition_on_random_patterns) {
  Numbers numbers(1);
  for (int round = 0; round < 150; ++round) {
    std::vector<Matrix> matrices;
    for (int i = 0; i < 2; ++i) {
      Matrix m;
      m.blockRows = int64_t(numbers.below(5)) + 1;
      m.blockCols = int64_t(numbers.below(5)) + 1;
      m.rows = m.blockRows * int64_t(numbers.below(12) + 1);
      m.cols = m.blockCols * int64_t(numbers.below(12) + 1);
      int64_t all = (m.rows / m.blockRows) * (m.cols / m.blockCols);
      m.slots = int64_t(numbers.below(uint64_t(all) + 5)) + 1;
      matrices.push_back(m);
    }
    Step step = load(makeManifest(matrices));
    Session session = start(step, numbers.below(1000));
    for (int p = 0; p < 2; ++p) {
      const Matrix &m = matrices[p];
      int64_t all = (m.rows / m.blockRows) * (m.cols / m.blockCols);
      REQUIRE_OK(bsr_session_make_pattern(
          session.get(), p,
          int64_t(numbers.below(std::min(m.slots, all) + 1))));
      fillSmall(session, m, p, numbers);
    }
    for (int update = 0; update < 4; ++update) {
      checkUpdate(session, matrices, double(numbers.below(101)) / 100);
      fillSmall(session, matrices[0], 0, numbers);
    }
  }
}

CASE(update_of_every_block_size) {
  Numbers numbers(2);
  for (int64_t blockRows : {1, 4, 8, 16, 24, 32, 64})
    for (int64_t blockCols : {1, 4, 16, 48, 64}) {
      std::vector<Matrix> matrices = {
          {9 * blockRows, 7 * blockCols, blockRows, blockCols, 21}};
      Step step = load(makeManifest(matrices));
      Session session = start(step);
      REQUIRE_OK(bsr_session_initialize(session.get()));
      fillSmall(session, matrices[0], 0, numbers);
      checkUpdate(session, matrices, 0.3);
      checkUpdate(session, matrices, 1);
    }
}

CASE(update_is_the_same_everywhere) {
  // All norms are equal: the first three blocks go.
  Step step = loadFake();
  Session session = start(step, 42);
  REQUIRE_OK(bsr_session_initialize(session.get()));
  REQUIRE_OK(bsr_session_init_buffer(session.get(), 0, "ones"));
  REQUIRE_OK(bsr_session_update_patterns(session.get(), 0.5, nullptr));
  std::ostringstream blocks;
  Matrix matrix = {8, 12, 2, 3, 6};
  for (auto &[place, slot] : Blocks(session, matrix, 0).slots)
    blocks << place.first << place.second << " ";
  REQUIRE_EQUAL(blocks.str(), "02 03 10 13 22 33 ");
}

CASE(update_of_equal_norms_prunes_the_first) {
  std::vector<Matrix> matrices = {{8, 8, 1, 1, 30}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  REQUIRE_OK(bsr_session_initialize(session.get()));
  REQUIRE_OK(bsr_session_init_buffer(session.get(), 0, "constant(-2)"));
  Blocks before(session, matrices[0], 0);
  REQUIRE_OK(bsr_session_update_patterns(session.get(), 0.5, nullptr));
  Blocks after(session, matrices[0], 0);
  int64_t index = 0;
  for (auto &[place, slot] : before.slots)
    REQUIRE_EQUAL(after.slots.count(place), size_t(index++ >= 15));
}

CASE(update_is_capped_by_the_absent_blocks) {
  for (int64_t slots : {60, 63, 64, 70}) {
    std::vector<Matrix> matrices = {{8, 8, 1, 1, slots}};
    Step step = load(makeManifest(matrices));
    Session session = start(step);
    REQUIRE_OK(bsr_session_initialize(session.get()));
    int64_t pruned;
    REQUIRE_OK(bsr_session_update_patterns(session.get(), 0.5, &pruned));
    REQUIRE_EQUAL(pruned, std::max<int64_t>(64 - slots, 0));
  }
}

CASE(update_of_nothing_changes_nothing) {
  Step step = load(makeManifest({{8, 8, 2, 2, 8}}));
  Session session = start(step), empty = start(step);
  REQUIRE_OK(bsr_session_initialize(session.get()));
  std::string before = contentsOf(session, step);
  int64_t pruned = -1;
  REQUIRE_OK(bsr_session_update_patterns(session.get(), 0, &pruned));
  REQUIRE_EQUAL(pruned, 0);
  REQUIRE(before == contentsOf(session, step));
  REQUIRE_OK(bsr_session_update_patterns(empty.get(), 1, &pruned));
  REQUIRE_EQUAL(pruned, 0);
  REQUIRE_EQUAL(countersOf(empty).pattern_updates, 1);
}

CASE(update_refuses_fractions_out_of_range) {
  Step step = loadFake();
  Session session = start(step);
  for (auto [drop, text] :
       {std::pair{-0.1, "-0.1"}, {1.5, "1.5"}, {std::nan(""), "nan"}})
    REQUIRE_FAILS(bsr_session_update_patterns(session.get(), drop, nullptr),
                  BSR_INVALID_ARGUMENT,
                  "expected a drop fraction in [0, 1], but got " +
                      std::string(text));
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
    REQUIRE_OK(bsr_session_set_pattern(session.get(), p, &view));
    std::fill_n(valuesOf<T>(session, 9 * p), 16, one);
  }
  // An infinite norm ranks last; NaN is an error, and nothing has changed, not
  // even in the matrix before. NaN in a moment is no concern of an update.
  valuesOf<T>(session, 9)[5] = nan;
  valuesOf<T>(session, 1)[0] = nan;
  std::string before = contentsOf(session, step);
  REQUIRE_FAILS(bsr_session_update_patterns(session.get(), 0.5, nullptr),
                BSR_NOT_A_NUMBER,
                "expected numbers in block (2, 0) of 'w1', but got NaN");
  REQUIRE(before == contentsOf(session, step));
  REQUIRE_EQUAL(countersOf(session).pattern_updates, 0);
  valuesOf<T>(session, 9)[5] = infinity;
  REQUIRE_OK(bsr_session_update_patterns(session.get(), 0.75, nullptr));
  Blocks after(session, matrices[1], 1);
  REQUIRE_EQUAL(after.slots.count({2, 0}), 1u);
}

CASE(update_refuses_nan_of_every_type) {
  using Float = std::numeric_limits<float>;
  using Double = std::numeric_limits<double>;
  checkNaN<float>("f32", Float::quiet_NaN(), -Float::infinity(), 1);
  checkNaN<double>("f64", Double::quiet_NaN(), Double::infinity(), 1);
  checkNaN<uint16_t>("f16", 0x7e01, 0xfc00, 0x3c00);
  checkNaN<uint16_t>("bf16", 0xff81, 0x7f80, 0x3f80);
}

CASE(update_ranks_every_type_by_value) {
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
      REQUIRE_OK(bsr_session_initialize(session.get()));
      // Slot 3 k mod 8 gets the k-th lowest.
      for (int k = 0; k < 8; ++k)
        valuesOf<uint16_t>(session, 0)[3 * k % 8] =
            (isHalf ? halves : bfloats)[k];
      Blocks before(session, matrices[0], 0);
      REQUIRE_OK(
          bsr_session_update_patterns(session.get(), count / 8.0, nullptr));
      Blocks after(session, matrices[0], 0);
      for (auto &[place, slot] : before.slots)
        REQUIRE_EQUAL(after.slots.count(place), size_t(slot * 3 % 8 >= count));
    }
  }
}

CASE(update_norms_are_exact_enough_to_order) {
  // In f32 these sums would be equal: 2^24 + 1 against 2^24.
  std::vector<Matrix> matrices = {{2, 4, 1, 2, 2}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  int32_t rowPtr[] = {0, 2, 2}, colIdx[] = {0, 1};
  bsr_pattern_view view = {2,       rowPtr,  colIdx, nullptr,
                           nullptr, nullptr, nullptr};
  REQUIRE_OK(bsr_session_set_pattern(session.get(), 0, &view));
  const float values[] = {16777216, 1, 16777216, 0};
  std::copy_n(values, 4, valuesOf<float>(session, 0));
  REQUIRE_OK(bsr_session_update_patterns(session.get(), 0.5, nullptr));
  Blocks after(session, matrices[0], 0);
  REQUIRE_EQUAL(after.slots.count({0, 0}), 1u);
  REQUIRE_EQUAL(after.slots.count({0, 1}), 0u);
}

CASE(update_choices_are_even) {
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
    REQUIRE_OK(bsr_session_set_pattern(session.get(), 0, &view));
    for (auto &[place, slot] : Blocks(session, matrices[0], 0).slots)
      initial[4 * place.first + place.second] = true;
    REQUIRE_OK(bsr_session_update_patterns(session.get(), 0.5, nullptr));
    for (auto &[place, slot] : Blocks(session, matrices[0], 0).slots)
      ++counts[4 * place.first + place.second];
  }
  for (int b = 0; b < 16; ++b)
    if (!initial[b])
      REQUIRE(std::abs(counts[b] - 1200) < 130); // 4.5 standard deviations
}

CASE(update_is_keyed_by_seed_name_and_number) {
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
          REQUIRE_OK(bsr_session_update_patterns(session.get(), 0.5, nullptr));
        REQUIRE_OK(bsr_session_set_pattern(session.get(), p, &view));
      }
    REQUIRE_OK(bsr_session_update_patterns(session.get(), 0.5, nullptr));
    return std::pair{Blocks(session, matrices[0], 0).slots,
                     Blocks(session, matrices[1], 1).slots};
  };
  REQUIRE(run(1, 1) == run(1, 1));
  REQUIRE(run(1, 1).first != run(2, 1).first);
  REQUIRE(run(1, 1).first != run(1, 1).second);
  REQUIRE(run(1, 1).first != run(1, 2).first);
}

CASE(update_is_counted_and_allocates_nothing) {
  std::vector<Matrix> matrices = {{64, 64, 4, 4, 100}, {64, 32, 1, 1, 500}};
  Step step = load(makeManifest(matrices));
  Session session = start(step);
  REQUIRE_OK(bsr_session_initialize(session.get()));
  std::vector<void *> addresses;
  for (int64_t i = 0; i < bsr_step_num_buffers(step.get()); ++i)
    addresses.push_back(bsr_session_buffer(session.get(), i));
  int64_t before = allocations;
  for (int i = 0; i < 10; ++i)
    REQUIRE(bsr_session_update_patterns(session.get(), 0.25, nullptr) ==
            BSR_OK);
  REQUIRE_EQUAL(allocations, before);
  bsr_counters counters = countersOf(session);
  REQUIRE_EQUAL(counters.pattern_updates, 10);
  REQUIRE_EQUAL(counters.blocks_pruned, 10 * (25 + 125));
  REQUIRE_EQUAL(counters.blocks_regrown, 10 * (25 + 125));
  REQUIRE_EQUAL(counters.reallocations, 0);
  REQUIRE_EQUAL(counters.recompilations, 0);
  REQUIRE_EQUAL(counters.allocations, 1);
  for (size_t i = 0; i < addresses.size(); ++i)
    REQUIRE_EQUAL(addresses[i], bsr_session_buffer(session.get(), int64_t(i)));
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Patterns that a session begins with: random ones, of the largest blocks, and
// their densities.

#include "Assertions.h"
#include "Definition.h"
#include <algorithm>
#include <cmath>
#include <set>

using namespace check;

/// The invariants, checked the long way round.
static void requireValid(const bsr_pattern_view &view, int64_t rows,
                         int64_t cols, int64_t slots) {
  using Triple = std::array<int64_t, 3>;
  std::vector<Triple> byRow, byCol;
  ASSERT_EQ(view.row_ptr[0], 0);
  ASSERT_EQ(view.col_ptr[0], 0);
  for (int64_t r = 0; r < rows; ++r)
    for (int32_t k = view.row_ptr[r]; k < view.row_ptr[r + 1]; ++k)
      byRow.push_back({r, view.col_idx[k], view.slot[k]});
  for (int64_t c = 0; c < cols; ++c)
    for (int32_t k = view.col_ptr[c]; k < view.col_ptr[c + 1]; ++k)
      byCol.push_back({view.row_idx[k], c, view.slot_t[k]});
  ASSERT_EQ(int64_t(byRow.size()), view.blocks);
  ASSERT_TRUE(std::is_sorted(byRow.begin(), byRow.end()));
  ASSERT_TRUE(std::is_sorted(
      byCol.begin(), byCol.end(), [](const Triple &a, const Triple &b) {
        return std::pair(a[1], a[0]) < std::pair(b[1], b[0]);
      }));
  std::sort(byCol.begin(), byCol.end());
  ASSERT_TRUE(byRow == byCol);
  std::set<std::pair<int64_t, int64_t>> places;
  std::set<int64_t> used;
  for (auto [r, c, slot] : byRow) {
    ASSERT_TRUE(c >= 0 && c < cols && slot >= 0 && slot < slots);
    ASSERT_TRUE(places.insert({r, c}).second);
    ASSERT_TRUE(used.insert(slot).second);
  }
}

TEST(PatternTest, MadeIsValidForEveryBlockAndCount) {
  for (int64_t blockRows : {1, 2, 3, 4, 8, 16, 24, 32, 64})
    for (int64_t blockCols : {1, 5, 16, 64}) {
      Step step = load(makeManifest(
          {{7 * blockRows, 5 * blockCols, blockRows, blockCols, 20}}));
      for (int64_t blocks : {0, 1, 7, 19, 20, BSR_MOST_BLOCKS}) {
        Session session = start(step, uint64_t(blocks));
        ASSERT_TRUE(
            succeeds(bsr_session_make_pattern(session.get(), 0, blocks)));
        bsr_pattern_view view = viewOf(session);
        ASSERT_EQ(view.blocks, blocks < 0 ? 20 : blocks);
        requireValid(view, 7, 5, 20);
        for (int64_t k = 0; k < view.blocks; ++k)
          ASSERT_EQ(view.slot[k], k);
        ASSERT_TRUE(succeeds(checkPatterns(session)));
      }
    }
}

TEST(PatternTest, WithSlotsForEveryBlockIsDense) {
  for (int64_t slots : {35, 50}) {
    Step step = load(makeManifest({{14, 15, 2, 3, slots, "f32", 1.0}}));
    Session session = start(step);
    ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
    bsr_pattern_view view = viewOf(session);
    ASSERT_EQ(view.blocks, 35);
    for (int64_t k = 0; k < 35; ++k)
      ASSERT_EQ(view.col_idx[k], k % 5);
    requireValid(view, 7, 5, slots);
  }
}

TEST(PatternTest, ChoicesAreEven) {
  // How often each of 4 x 4 blocks, and each pair of neighbours, is among 6.
  Step step = loadFake();
  int counts[16] = {}, pairs[15] = {};
  for (int seed = 0; seed < 8000; ++seed) {
    Session session = start(step, seed);
    ASSERT_TRUE(succeeds(bsr_session_make_pattern(session.get(), 0, 6)));
    bsr_pattern_view view = viewOf(session);
    bool stored[16] = {};
    for (int r = 0; r < 4; ++r)
      for (int32_t k = view.row_ptr[r]; k < view.row_ptr[r + 1]; ++k)
        stored[4 * r + view.col_idx[k]] = true;
    for (int b = 0; b < 16; ++b)
      counts[b] += stored[b];
    for (int b = 0; b < 15; ++b)
      pairs[b] += stored[b] && stored[b + 1];
  }
  // 6/16 of 8000 and (6*5)/(16*15) of 8000, each with 4.5 standard deviations.
  for (int count : counts)
    ASSERT_LT(std::abs(count - 3000), 195);
  for (int count : pairs)
    ASSERT_LT(std::abs(count - 1000), 133);
}

TEST(PatternTest, MadeIsKeyedBySeedAndName) {
  Step step = load(makeManifest({{32, 32, 1, 1, 400}, {32, 32, 1, 1, 400}}));
  auto columns = [&](uint64_t seed, int64_t pattern) {
    Session session = start(step, seed);
    require(bsr_session_initialize(session.get()));
    bsr_pattern_view view = viewOf(session, pattern);
    return std::vector<int32_t>(view.col_idx, view.col_idx + view.blocks);
  };
  ASSERT_TRUE(columns(5, 0) == columns(5, 0));
  ASSERT_TRUE(columns(5, 0) != columns(6, 0));
  ASSERT_TRUE(columns(5, 0) != columns(5, 1));
}

TEST(PatternTest, MadeIsTheSameEverywhere) {
  Step step = loadFake();
  Session session = start(step, 42);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  std::ostringstream blocks;
  bsr_pattern_view view = viewOf(session);
  for (int r = 0; r < 4; ++r)
    for (int32_t k = view.row_ptr[r]; k < view.row_ptr[r + 1]; ++k)
      blocks << r << view.col_idx[k] << " ";
  ASSERT_EQ(blocks.str(), "00 01 11 13 22 33 ");
}

template <typename T>
static void checkLargest(const char *type, bsr_type id, Numbers &numbers) {
  Matrix m = {12, 15, 2, 3, 20, type};
  int64_t rows = 6, cols = 5, size = 6;
  Step step = load(makeManifest({m}));
  for (int64_t blocks : {0, 1, 7, 20}) {
    for (bsr_norm norm : {BSR_L1, BSR_L2, BSR_LINF, BSR_MEAN}) {
      Session session = start(step);
      ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
      std::vector<T> dense(size_t(m.rows * m.cols));
      for (T &element : dense)
        element = T(int(numbers.below(9)) - 4);
      ASSERT_TRUE(succeeds(bsr_session_take_largest(session.get(), 0, blocks,
                                                    norm, id, dense.data())));

      // Rank all blocks, the largest first, of equal ones the first.
      auto element = [&](int64_t block, int64_t i) {
        int64_t r = block / cols * 2 + i / 3, c = block % cols * 3 + i % 3;
        return dense[size_t(r * m.cols + c)];
      };
      std::vector<std::pair<double, int64_t>> ranked;
      for (int64_t block = 0; block < rows * cols; ++block) {
        std::vector<double> elements;
        for (int64_t i = 0; i < size; ++i)
          elements.push_back(double(element(block, i)));
        ranked.push_back({-normOf(elements, norm), block});
      }
      std::sort(ranked.begin(), ranked.end());
      std::set<int64_t> expected;
      for (int64_t k = 0; k < blocks; ++k)
        expected.insert(ranked[size_t(k)].second);

      // They stand in slots 0, 1, ..., with their elements; the rest is zero,
      // or what the state began with.
      bsr_pattern_view view = viewOf(session);
      requireValid(view, rows, cols, m.slots);
      ASSERT_EQ(view.blocks, blocks);
      auto *values = static_cast<T *>(dataOf(session, 0));
      int64_t k = 0;
      for (int64_t block : expected) {
        int64_t r = block / cols;
        ASSERT_TRUE(view.row_ptr[r] <= k && k < view.row_ptr[r + 1]);
        ASSERT_EQ(view.col_idx[k], block % cols);
        ASSERT_EQ(view.slot[k], k);
        for (int64_t i = 0; i < size; ++i)
          ASSERT_EQ(values[k * size + i], element(block, i));
        ++k;
      }
      auto *first = static_cast<T *>(dataOf(session, 1));
      auto *second = static_cast<T *>(dataOf(session, 2));
      for (int64_t i = 0; i < m.slots * size; ++i) {
        bool isStored = i < k * size;
        ASSERT_TRUE(first[i] == 0 && (isStored || values[i] == 0));
        ASSERT_EQ(second[i], T(isStored ? 0.25 : 0));
      }
    }
  }
}

TEST(PatternTest, OfTheLargestBlocks) {
  Numbers numbers(3);
  checkLargest<float>("f32", BSR_F32, numbers);
  checkLargest<double>("f64", BSR_F64, numbers);
}

TEST(PatternTest, OfTheLargestBlocksRefuses) {
  Step step = loadFake();
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  std::string before = contentsOf(session, step);
  std::vector<float> dense(96, 1);
  auto take = [&](int64_t blocks, bsr_type type) {
    return bsr_session_take_largest(session.get(), 0, blocks, BSR_L1, type,
                                    dense.data());
  };
  ASSERT_TRUE(
      fails(take(7, BSR_F32), BSR_INVALID_ARGUMENT,
            "expected the blocks of pattern 'state.p.w' to be in [0, 6], "
            "but got 7"));
  ASSERT_TRUE(
      fails(take(3, BSR_F64), BSR_INVALID_ARGUMENT,
            "expected dense weights of type f32 for 'state.p.w', but got "
            "f64"));
  ASSERT_TRUE(fails(bsr_session_take_largest(session.get(), 0, 3, bsr_norm(4),
                                             BSR_F32, dense.data()),
                    BSR_INVALID_ARGUMENT,
                    "expected a norm from 0 to 3, but got 4 for pattern "
                    "'state.p.w'"));
  dense[3 * 12 + 7] = std::nanf("");
  ASSERT_TRUE(
      fails(take(3, BSR_F32), BSR_NOT_A_NUMBER,
            "expected numbers in block (1, 2) of 'state.p.w', but got NaN"));
  ASSERT_TRUE(before == contentsOf(session, step));
}

/// Scales the values of a matrix of `T` whose block row 0 and block column 1
/// are empty, and whose block row 3 is full but for that column.
template <typename T>
static void checkFanIn(const char *type, int64_t blockRows, int64_t blockCols) {
  const std::vector<std::vector<int32_t>> rows = {
      {}, {0, 2}, {4}, {0, 2, 3, 4}};
  constexpr int64_t slots = 9;
  int64_t size = blockRows * blockCols;
  Matrix m = {4 * blockRows, 5 * blockCols, blockRows, blockCols, slots, type};
  Step step = load(makeManifest({m}));
  for (bsr_fan_in fanIn :
       {BSR_FAN_IN_DENSE, BSR_FAN_IN_ROWS, BSR_FAN_IN_COLUMNS}) {
    Session session = start(step);
    std::vector<int32_t> rowPtr = {0}, colIdx, slot;
    for (auto &row : rows) {
      colIdx.insert(colIdx.end(), row.begin(), row.end());
      rowPtr.push_back(int32_t(colIdx.size()));
    }
    for (size_t k = 0; k < colIdx.size(); ++k)
      slot.push_back(int32_t(slots - 1 - k)); // the first two are free
    bsr_pattern_view view = {7,       rowPtr.data(), colIdx.data(), slot.data(),
                             nullptr, nullptr,       nullptr};
    require(bsr_session_set_pattern(session.get(), 0, &view));
    std::vector<T> values(size_t(slots * size)), moments(values.size());
    for (size_t i = 2 * size_t(size); i < values.size(); ++i)
      values[i] = T(i) / T(8);
    for (int64_t b : {0, 1})
      require(bsr_session_write(session.get(), b, 0,
                                int64_t(values.size() * sizeof(T)),
                                values.data()));
    ASSERT_TRUE(succeeds(bsr_session_scale_fan_in(session.get(), 0, fanIn)));
    std::vector<T> found(values.size());
    auto read = [&](int64_t b) {
      require(bsr_session_read(session.get(), b, 0,
                               int64_t(found.size() * sizeof(T)),
                               found.data()));
    };
    read(1);
    ASSERT_TRUE(found == values); // moments stay
    read(0);
    // As the definition has it: of an output's inputs, how many are stored.
    size_t k = 0;
    for (auto &row : rows)
      for (int32_t col : row) {
        int64_t column = 0;
        for (auto &other : rows)
          column += std::count(other.begin(), other.end(), col);
        double all = double(fanIn == BSR_FAN_IN_ROWS ? m.cols : m.rows);
        int64_t fanInStored = fanIn == BSR_FAN_IN_ROWS
                                  ? int64_t(row.size()) * blockCols
                                  : column * blockRows;
        double factor = fanIn == BSR_FAN_IN_DENSE
                            ? 1
                            : std::sqrt(all / double(fanInStored));
        for (int64_t i = 0; i < size; ++i) {
          size_t at = size_t(slot[k] * size + i);
          double want = factor * double(values[at]);
          ASSERT_LE(std::fabs(double(found[at]) - want),
                    want * std::numeric_limits<T>::epsilon());
          values[at] = 0;
          found[at] = 0;
        }
        ++k;
      }
    ASSERT_TRUE(found == values); // and free slots are zeros
  }
}

TEST(PatternTest, ValuesOfTheStoredFanIn) {
  for (auto [blockRows, blockCols] :
       {std::pair<int64_t, int64_t>{1, 1}, {4, 2}, {16, 16}, {3, 5}}) {
    checkFanIn<float>("f32", blockRows, blockCols);
    checkFanIn<double>("f64", blockRows, blockCols);
  }
}

// Of 16 bits: four times 1.5 is a number of both types.
TEST(PatternTest, ValuesOfTheStoredFanInOfOtherTypes) {
  for (const char *type : {"bf16", "f16"}) {
    Matrix m = {8, 32, 4, 2, 2, type};
    Step step = load(makeManifest({m}));
    Session session = start(step);
    ASSERT_TRUE(succeeds(bsr_session_make_pattern(session.get(), 0, 1)));
    auto values = [&](const char *rule) {
      require(initBuffer(session, 0, rule));
      if (std::string(rule) == "constant(1.5)")
        require(bsr_session_scale_fan_in(session.get(), 0, BSR_FAN_IN_ROWS));
      std::vector<char> data(2 * 8 * 2);
      require(bsr_session_read(session.get(), 0, 0, int64_t(data.size()),
                               data.data()));
      return data;
    };
    ASSERT_EQ(values("constant(1.5)"), values("constant(6)"));
  }
}

TEST(PatternTest, FanInRefuses) {
  Step step = loadFake();
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  ASSERT_TRUE(fails(
      bsr_session_scale_fan_in(session.get(), 0, bsr_fan_in(3)),
      BSR_INVALID_ARGUMENT,
      "expected a fan-in from 0 to 2, but got 3 for pattern 'state.p.w'"));
}

TEST(PatternTest, DensitiesByErdosRenyi) {
  // All matrices together have the density, each its share of rows + columns,
  // unless that is more than all of it.
  Numbers numbers(4);
  for (int round = 0; round < 300; ++round) {
    int64_t count = int64_t(numbers.below(8)) + 1;
    std::vector<int64_t> rows, cols;
    for (int64_t i = 0; i < count; ++i) {
      rows.push_back(int64_t(numbers.below(numbers.below(2) ? 8 : 4000)) + 1);
      cols.push_back(int64_t(numbers.below(numbers.below(2) ? 8 : 4000)) + 1);
    }
    double density = double(numbers.below(101)) / 100;
    std::vector<double> densities(size_t(count), -1);
    ASSERT_TRUE(succeeds(bsr_erdos_renyi_densities(
        count, rows.data(), cols.data(), nullptr, density, densities.data())));
    double all = 0, stored = 0, scale = -1;
    for (size_t i = 0; i < size_t(count); ++i) {
      double elements = double(rows[i]) * double(cols[i]);
      all += elements;
      stored += densities[i] * elements;
      ASSERT_TRUE(densities[i] >= 0 && densities[i] <= 1);
      if (densities[i] == 1)
        continue;
      double own = densities[i] * elements / double(rows[i] + cols[i]);
      ASSERT_TRUE(scale < 0 || std::fabs(own - scale) <= 1e-9 * scale);
      scale = own;
    }
    ASSERT_LE(std::fabs(stored - density * all), 1e-9 * all);
    // A matrix that is full would be at least so by the scale of the others.
    for (size_t i = 0; i < size_t(count); ++i)
      if (densities[i] == 1 && scale >= 0)
        ASSERT_GE(scale * double(rows[i] + cols[i]),
                  double(rows[i]) * double(cols[i]) * (1 - 1e-9));
  }
  // A layer of BERT-Base at density 0.1: q, k, v, o of 768 x 768, and two of
  // 768 x 3072; by hand, 0.1 * 7077888 / (4 * 1536 + 2 * 3840) = 51.2.
  int64_t rows[] = {768, 768, 768, 768, 768, 3072};
  int64_t cols[] = {768, 768, 768, 768, 3072, 768};
  double densities[6];
  ASSERT_TRUE(succeeds(
      bsr_erdos_renyi_densities(6, rows, cols, nullptr, 0.1, densities)));
  ASSERT_LT(std::fabs(densities[0] - 51.2 * 1536 / 589824), 1e-12);
  ASSERT_LT(std::fabs(densities[5] - 51.2 * 3840 / 2359296), 1e-12);
  // A convolution of 64 to 128 channels with windows of 3 x 3 counts 64, 128,
  // 3 and 3, beside a matrix of 100 x 100; by hand, 0.1 * 83728 / (198 + 200).
  int64_t outs[] = {128, 100}, ins[] = {64 * 9, 100}, extents[] = {198, 200};
  double scale = 0.1 * 83728 / 398;
  ASSERT_TRUE(succeeds(
      bsr_erdos_renyi_densities(2, outs, ins, extents, 0.1, densities)));
  ASSERT_LT(std::fabs(densities[0] - scale * 198 / 73728), 1e-12);
  ASSERT_LT(std::fabs(densities[1] - scale * 200 / 10000), 1e-12);
}

TEST(PatternTest, DensitiesOfAnyOrder) {
  // Each matrix has the same, to the last bit: stages list them in theirs.
  constexpr int count = 6;
  int64_t rows[] = {7, 13, 101, 768, 55, 3}, cols[] = {11, 97, 3, 30, 768, 5};
  double densities[count];
  ASSERT_TRUE(succeeds(
      bsr_erdos_renyi_densities(count, rows, cols, nullptr, 0.1, densities)));
  for (int shift = 1; shift < count; ++shift) {
    std::rotate(rows, rows + 1, rows + count);
    std::rotate(cols, cols + 1, cols + count);
    double others[count];
    ASSERT_TRUE(succeeds(
        bsr_erdos_renyi_densities(count, rows, cols, nullptr, 0.1, others)));
    for (int i = 0; i < count; ++i)
      ASSERT_EQ(others[i], densities[(i + shift) % count]);
  }
}

TEST(PatternTest, DensitiesRefuse) {
  int64_t rows[] = {8, 0}, cols[] = {8, 8};
  double densities[2];
  ASSERT_TRUE(
      fails(bsr_erdos_renyi_densities(0, rows, cols, nullptr, 0.1, densities),
            BSR_INVALID_ARGUMENT, "expected at least 1 matrix, but got 0"));
  ASSERT_TRUE(
      fails(bsr_erdos_renyi_densities(2, rows, cols, nullptr, 0.1, densities),
            BSR_INVALID_ARGUMENT,
            "expected the sizes of matrix 1 to be positive, but got 0x8"));
  int64_t none[] = {0};
  ASSERT_TRUE(
      fails(bsr_erdos_renyi_densities(1, cols, cols, none, 0.1, densities),
            BSR_INVALID_ARGUMENT,
            "expected the extents of matrix 0 to be positive, but got 0"));
  ASSERT_TRUE(
      fails(bsr_erdos_renyi_densities(1, rows, cols, nullptr, 1.5, densities),
            BSR_INVALID_ARGUMENT, "expected a density in [0, 1], but got 1.5"));
}

TEST(PatternTest, DensitiesOfGradualPruning) {
  ASSERT_EQ(bsr_gmp_density(1, 0.1, -1), 1.0);
  ASSERT_EQ(bsr_gmp_density(1, 0.1, 0), 1.0);
  ASSERT_EQ(bsr_gmp_density(1, 0.2, 0.5), 0.2 + 0.8 / 8);
  ASSERT_EQ(bsr_gmp_density(1, 0.1, 1), 0.1);
  ASSERT_EQ(bsr_gmp_density(0.5, 0.1, 2), 0.1);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Definition.h"
#include "Assertions.h"
#include "session/Session.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

using namespace check;

/// The elements of buffer `index`, wherever they lie.
template <typename T>
static std::vector<T> read(const Session &session, int64_t index) {
  int64_t bytes = session->manifest().buffers[size_t(index)].bytes;
  std::vector<T> elements(size_t(bytes) / sizeof(T));
  require(bsr_session_read(session.get(), index, 0, bytes, elements.data()));
  return elements;
}

static void write(const Session &session, int64_t index,
                  const std::vector<float> &elements) {
  ASSERT_TRUE(succeeds(bsr_session_write(
      session.get(), index, 0, int64_t(elements.size() * sizeof(float)),
      elements.data())));
}

static int64_t scoresOf(const Session &session, int64_t pattern) {
  return session->manifest().patterns[size_t(pattern)].scores;
}

static int64_t rowsOf(const Matrix &m) { return m.rows / m.blockRows; }
static int64_t colsOf(const Matrix &m) { return m.cols / m.blockCols; }

Blocks::Blocks(const Session &session, const Matrix &matrix, int64_t pattern) {
  bsr_pattern_view view = viewOf(session, pattern);
  for (int64_t r = 0; r < rowsOf(matrix); ++r)
    for (int32_t k = view.row_ptr[r]; k < view.row_ptr[r + 1]; ++k)
      slots[{r, view.col_idx[k]}] = view.slot[k];
}

void check::fillSmall(const Session &session, const Matrix &matrix,
                      int64_t pattern, Numbers &numbers) {
  std::vector<float> values(
      size_t(matrix.slots * matrix.blockRows * matrix.blockCols));
  for (int64_t buffer = 9 * pattern; buffer < 9 * pattern + 3; ++buffer) {
    for (float &value : values)
      value = float(numbers.below(7)) - 3;
    write(session, buffer, values);
  }
}

void check::fillScores(const Session &session, int64_t pattern,
                       Numbers &numbers) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float some[] = {0, -0.0f, 1, 2.5f, 1e-42f, -3, infinity, -infinity};
  const sparse_opt::Pattern &known =
      session->manifest().patterns[size_t(pattern)];
  std::vector<float> scores(size_t(known.allBlocks()));
  uint64_t kinds = numbers.below(4) ? 8 : 1;
  for (float &score : scores)
    score = some[numbers.below(kinds)];
  write(session, known.scores, scores);
}

double check::normOf(const std::vector<double> &block, bsr_norm norm) {
  double sum = 0, squares = 0, most = 0;
  for (double element : block) {
    sum += std::fabs(element);
    squares += element * element;
    most = std::max(most, std::fabs(element));
  }
  return norm == BSR_L1     ? sum
         : norm == BSR_L2   ? std::sqrt(squares)
         : norm == BSR_LINF ? most
                            : sum / double(block.size());
}

Compared::Compared(const Session &session, const std::vector<Matrix> &matrices)
    : session(session), matrices(matrices), ever(matrices.size()),
      newest(matrices.size()) {
  for (size_t p = 0; p < matrices.size(); ++p)
    for (auto &[place, slot] : Blocks(session, matrices[p], int64_t(p)).slots)
      ever[p].insert(place);
}

void Compared::update(const Rules &rules) {
  std::vector<Before> before;
  for (size_t p = 0; p < matrices.size(); ++p) {
    const Matrix &m = matrices[p];
    before.push_back({Blocks(session, m, int64_t(p)), {}, {}});
    for (int b = 0; b < 3; ++b) {
      before.back().values[b] = read<float>(session, int64_t(9 * p + b));
    }
    if (m.hasScores)
      before.back().scores =
          read<float>(session, scoresOf(session, int64_t(p)));
  }
  bsr_counters old = countersOf(session);
  ASSERT_TRUE(succeeds(
      bsr_session_update(session.get(), rules.data(), int64_t(rules.size()))));
  ASSERT_TRUE(succeeds(checkPatterns(session)));
  int64_t pruned = 0, regrown = 0;
  Rules alone = rules;
  shareBlocks(alone, before);
  for (size_t p = 0; p < matrices.size(); ++p)
    compare(p, alone[p], before[p], pruned, regrown);
  bsr_counters now = countersOf(session);
  ASSERT_EQ(now.pattern_updates, old.pattern_updates + 1);
  ASSERT_EQ(now.blocks_pruned, old.blocks_pruned + pruned);
  ASSERT_EQ(now.blocks_regrown, old.blocks_regrown + regrown);
}

// One block after the other goes, the lowest of all that are not the last of
// their matrix.
void Compared::shareBlocks(Rules &rules,
                           const std::vector<Before> &before) const {
  using Ranked = std::tuple<double, size_t, Place>;
  std::map<int32_t, std::vector<std::set<Ranked>>> groups;
  for (size_t p = 0; p < matrices.size(); ++p) {
    if (!rules[p].together)
      continue;
    int64_t size = matrices[p].blockRows * matrices[p].blockCols;
    std::set<Ranked> own;
    for (auto &[place, slot] : before[p].blocks.slots) {
      const float *block = &before[p].values[0][slot * size];
      own.insert({normOf({block, block + size}, rules[p].norm), p, place});
    }
    groups[rules[p].together].push_back(own);
  }
  for (auto &[number, own] : groups) {
    std::vector<int64_t> counts(matrices.size());
    for (;;) {
      int64_t stored = 0, most = 0;
      std::set<Ranked> *next = nullptr;
      for (auto &blocks : own) {
        stored += int64_t(blocks.size());
        if (blocks.size() > 1 && (!next || *blocks.begin() < *next->begin()))
          next = &blocks;
      }
      for (size_t p = 0; p < matrices.size(); ++p)
        if (rules[p].together == number)
          most = rules[p].blocks;
      if (stored <= most || !next)
        break;
      ++counts[std::get<1>(*next->begin())];
      next->erase(next->begin());
    }
    for (size_t p = 0; p < matrices.size(); ++p)
      if (rules[p].together == number)
        rules[p].blocks = int64_t(before[p].blocks.slots.size()) - counts[p];
  }
}

/// What lies on a device is what the host knows of pattern `p`, and the column
/// view is that of the row view.
void Compared::compareViews(size_t p) const {
  bsr_pattern_view view = viewOf(session, int64_t(p));
  int64_t rows = rowsOf(matrices[p]), cols = colsOf(matrices[p]);
  auto isThere = [&](int64_t array, const int32_t *known, int64_t size) {
    auto there = read<int32_t>(session, int64_t(9 * p) + 3 + array);
    ASSERT_TRUE(std::equal(known, known + size, there.begin()));
  };
  isThere(0, view.row_ptr, rows + 1);
  isThere(1, view.col_idx, view.blocks);
  isThere(2, view.slot, view.blocks);
  isThere(3, view.col_ptr, cols + 1);
  isThere(4, view.row_idx, view.blocks);
  isThere(5, view.slot_t, view.blocks);
  std::vector<std::vector<int32_t>> rowsIn, slotsIn;
  rowsIn.resize(size_t(cols));
  slotsIn.resize(size_t(cols));
  for (auto &[place, slot] : Blocks(session, matrices[p], int64_t(p)).slots) {
    rowsIn[size_t(place.second)].push_back(int32_t(place.first));
    slotsIn[size_t(place.second)].push_back(slot);
  }
  int32_t next = 0;
  for (int64_t c = 0; c < cols; ++c) {
    ASSERT_EQ(view.col_ptr[c], next);
    for (size_t i = 0; i < rowsIn[size_t(c)].size(); ++i, ++next) {
      ASSERT_EQ(view.row_idx[next], rowsIn[size_t(c)][i]);
      ASSERT_EQ(view.slot_t[next], slotsIn[size_t(c)][i]);
    }
  }
  ASSERT_EQ(view.col_ptr[cols], next);
}

void Compared::compare(size_t p, const bsr_pattern_update &rule,
                       const Before &before, int64_t &allPruned,
                       int64_t &allRegrown) {
  const Matrix &m = matrices[p];
  const std::map<Place, int32_t> &old = before.blocks.slots;
  Blocks now(session, m, int64_t(p));
  int64_t size = m.blockRows * m.blockCols;
  int64_t stored = int64_t(old.size());
  int64_t absent = rowsOf(m) * colsOf(m) - stored;
  int64_t count = int64_t(std::floor(rule.drop * double(stored) + 0.5));
  if (!rule.allow_return)
    count = std::min(count, absent);
  if (rule.method == BSR_GMP)
    count = std::max<int64_t>(stored - rule.blocks, 0);
  if (rule.method == BSR_STATIC)
    count = 0;

  // Rank by norm, and equal ones by place.
  std::vector<std::pair<double, Place>> ranked;
  for (auto &[place, slot] : old) {
    const float *block = &before.values[0][slot * size];
    ranked.push_back({normOf({block, block + size}, rule.norm), place});
  }
  std::sort(ranked.begin(), ranked.end());
  std::set<Place> pruned;
  for (int64_t k = 0; k < count; ++k)
    pruned.insert(ranked[k].second);

  // What is regrown: the largest scores, or whatever is there.
  std::vector<std::pair<double, Place>> candidates;
  for (int64_t r = 0; r < rowsOf(m); ++r)
    for (int64_t c = 0; c < colsOf(m); ++c)
      if (!old.count({r, c}) || (rule.allow_return && pruned.count({r, c})))
        candidates.push_back(
            {m.hasScores ? -before.scores[r * colsOf(m) + c] : 0, {r, c}});
  std::set<Place> chosen;
  if (rule.method == BSR_RIGL) {
    std::sort(candidates.begin(), candidates.end());
    for (int64_t k = 0; k < count; ++k)
      chosen.insert(candidates[k].second);
  } else if (rule.method == BSR_SET) {
    for (auto &[score, place] : candidates)
      if (now.slots.count(place))
        chosen.insert(place);
    ASSERT_EQ(int64_t(chosen.size()), count);
  }

  // Both pruned and chosen: nothing happens. The others swap, in order.
  std::map<Place, int32_t> expected = old;
  std::vector<int32_t> freed;
  std::vector<Place> fresh;
  for (const Place &place : chosen)
    if (!pruned.erase(place))
      fresh.push_back(place);
  int64_t newestPruned = 0;
  for (const Place &place : pruned) {
    freed.push_back(old.at(place));
    expected.erase(place);
    newestPruned += newest[p].count(place);
  }
  for (size_t i = 0; i < fresh.size(); ++i)
    expected[fresh[i]] = freed[i];
  ASSERT_TRUE(now.slots == expected);
  compareViews(p);
  for (int b = 0; b < 3; ++b) {
    std::vector<float> values = before.values[b];
    for (int32_t slot : freed)
      std::fill_n(values.begin() + slot * size, size, 0.0f);
    // A new block holds what the state began with.
    for (size_t i = 0; b == 2 && i < fresh.size(); ++i)
      std::fill_n(values.begin() + freed[i] * size, size, 0.25f);
    ASSERT_TRUE(values == read<float>(session, int64_t(9 * p + b)));
  }

  bsr_pattern_statistics statistics;
  ASSERT_TRUE(
      succeeds(bsr_session_statistics(session.get(), int64_t(p), &statistics)));
  if (rule.method != BSR_STATIC) {
    ASSERT_EQ(statistics.pruned, int64_t(pruned.size()));
    ASSERT_EQ(statistics.regrown, int64_t(fresh.size()));
    ASSERT_EQ(statistics.newest, int64_t(newest[p].size()));
    ASSERT_EQ(statistics.newest_pruned, newestPruned);
    newest[p] = std::set<Place>(fresh.begin(), fresh.end());
    ever[p].insert(fresh.begin(), fresh.end());
    allPruned += int64_t(pruned.size());
    allRegrown += int64_t(fresh.size());
  }
  ASSERT_EQ(statistics.blocks, int64_t(expected.size()));
  ASSERT_EQ(statistics.all_blocks, stored + absent);
  ASSERT_EQ(statistics.ever_stored, int64_t(ever[p].size()));
  std::map<int64_t, int64_t> inRow, inColumn;
  int64_t mostInRow = 0, mostInColumn = 0;
  for (auto &[place, slot] : expected) {
    mostInRow = std::max(mostInRow, ++inRow[place.first]);
    mostInColumn = std::max(mostInColumn, ++inColumn[place.second]);
  }
  ASSERT_EQ(statistics.most_in_row, mostInRow);
  ASSERT_EQ(statistics.most_in_column, mostInColumn);
}

void check::compareRandomUpdates(
    int rounds,
    const std::function<Session(const std::vector<Matrix> &, uint64_t)> &make) {
  Numbers numbers(1);
  for (int round = 0; round < rounds; ++round) {
    std::vector<Matrix> matrices;
    for (int i = 0; i < 2; ++i) {
      Matrix m;
      m.blockRows = int64_t(numbers.below(5)) + 1;
      m.blockCols = int64_t(numbers.below(5)) + 1;
      m.rows = m.blockRows * int64_t(numbers.below(12) + 1);
      m.cols = m.blockCols * int64_t(numbers.below(12) + 1);
      int64_t all = (m.rows / m.blockRows) * (m.cols / m.blockCols);
      m.slots = int64_t(numbers.below(uint64_t(all) + 5)) + 1;
      m.hasScores = true;
      matrices.push_back(m);
    }
    Session session = make(matrices, numbers.below(1000));
    for (int p = 0; p < 2; ++p) {
      const Matrix &m = matrices[p];
      int64_t all = (m.rows / m.blockRows) * (m.cols / m.blockCols);
      ASSERT_TRUE(succeeds(bsr_session_make_pattern(
          session.get(), p,
          int64_t(numbers.below(std::min(m.slots, all) + 1)))));
      fillSmall(session, m, p, numbers);
    }
    Compared compared(session, matrices);
    for (int update = 0; update < 4; ++update) {
      Rules rules;
      for (const Matrix &m : matrices)
        rules.push_back(anyRule(m, numbers));
      ASSERT_TRUE(succeeds(bsr_session_run_scores(session.get())));
      for (int64_t p : {0, 1})
        fillScores(session, p, numbers);
      compared.update(rules);
      fillSmall(session, matrices[0], 0, numbers);
    }
  }
}

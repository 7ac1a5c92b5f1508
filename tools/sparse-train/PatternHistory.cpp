// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps sets of blocks, a bit each, and compares them.

#include "PatternHistory.h"
#include "Support.h"

#include <algorithm>
#include <optional>

using namespace bsr;
using nlohmann::ordered_json;

static int64_t count(const std::vector<uint64_t> &blocks) {
  int64_t sum = 0;
  for (uint64_t word : blocks)
    sum += __builtin_popcountll(word);
  return sum;
}

/// Fills `blocks` with the stored blocks of pattern `index`, and measures how
/// evenly its rows are filled.
void PatternHistory::take(const Session &session, int64_t index,
                          Blocks &blocks) {
  Matrix &matrix = matrices[index];
  bsr_pattern_view view = session.pattern(index);
  int64_t rows = matrix.info.rows / matrix.info.block_rows;
  int64_t cols = matrix.info.cols / matrix.info.block_cols;
  blocks.assign(matrix.allBlocks / 64 + 1, 0);
  int32_t most = 0;
  for (int64_t row = 0; row < rows; ++row) {
    most = std::max(most, view.row_ptr[row + 1] - view.row_ptr[row]);
    for (int32_t k = view.row_ptr[row]; k < view.row_ptr[row + 1]; ++k) {
      int64_t block = row * cols + view.col_idx[k];
      blocks[block / 64] |= uint64_t(1) << (block % 64);
    }
  }
  matrix.imbalance = view.blocks ? double(most) * rows / view.blocks : 1;
}

PatternHistory::PatternHistory(const Session &session) {
  for (int64_t i = 0; i < bsr_step_num_patterns(session.step()); ++i) {
    Matrix matrix = {};
    bsr_step_pattern(session.step(), i, &matrix.info);
    matrix.allBlocks = matrix.info.rows / matrix.info.block_rows *
                       (matrix.info.cols / matrix.info.block_cols);
    matrices.push_back(matrix);
    Matrix &own = matrices.back();
    take(session, i, own.stored);
    own.used = own.stored;
    own.fresh.assign(own.stored.size(), 0);
  }
}

void PatternHistory::update(const Session &session) {
  updated = true;
  Blocks now;
  for (size_t i = 0; i < matrices.size(); ++i) {
    Matrix &matrix = matrices[i];
    take(session, i, now);
    matrix.wereFresh = count(matrix.fresh);
    matrix.lost = matrix.pruned = matrix.regrown = 0;
    for (size_t word = 0; word < now.size(); ++word) {
      uint64_t gone = matrix.stored[word] & ~now[word];
      matrix.pruned += __builtin_popcountll(gone);
      matrix.lost += __builtin_popcountll(gone & matrix.fresh[word]);
      matrix.fresh[word] = now[word] & ~matrix.stored[word];
      matrix.regrown += __builtin_popcountll(matrix.fresh[word]);
      matrix.used[word] |= now[word];
    }
    matrix.stored.swap(now);
  }
}

void PatternHistory::describe(ordered_json &entry) const {
  if (matrices.empty())
    return;
  // Writes what `of` measures of each matrix, and of all: the sum of the first
  // numbers over that of the second ones, where there are some.
  auto add = [&](const std::string &what, auto of) {
    std::pair<double, double> all;
    for (const Matrix &matrix : matrices) {
      std::pair<double, double> own = of(matrix);
      all.first += own.first, all.second += own.second;
      if (own.second)
        entry["weight_" + what][matrix.info.name] = own.first / own.second;
    }
    if (all.second)
      entry[what] = all.first / all.second;
  };
  auto share = [](const Matrix &matrix, const Blocks &blocks) {
    double elements = matrix.info.block_rows * matrix.info.block_cols;
    return std::pair(elements * count(blocks), elements * matrix.allBlocks);
  };
  add("density", [&](const Matrix &m) { return share(m, m.stored); });
  add("used", [&](const Matrix &m) { return share(m, m.used); });

  auto addCount = [&](const std::string &what, int64_t Matrix::*number) {
    int64_t all = 0;
    for (const Matrix &matrix : matrices) {
      all += matrix.*number;
      entry["weight_" + what][matrix.info.name] = matrix.*number;
    }
    entry[what] = all;
  };
  if (updated) {
    addCount("pruned", &Matrix::pruned);
    addCount("regrown", &Matrix::regrown);
    add("lost", [](const Matrix &m) {
      return std::pair<double, double>(m.lost, m.wereFresh);
    });
  }

  double most = 0;
  for (const Matrix &matrix : matrices) {
    most = std::max(most, matrix.imbalance);
    entry["weight_imbalance"][matrix.info.name] = matrix.imbalance;
  }
  entry["imbalance"] = most;
}

/// The bits of `blocks` as hexadecimal digits, and back.
static std::string toText(const std::vector<uint64_t> &blocks) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(blocks.size() * 16);
  for (uint64_t word : blocks)
    for (int shift = 60; shift >= 0; shift -= 4)
      text += digits[word >> shift & 15];
  return text;
}

static void fromText(const std::string &text, std::vector<uint64_t> &blocks) {
  if (text.size() != blocks.size() * 16)
    return;
  for (size_t i = 0; i < text.size(); ++i) {
    uint64_t digit = text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10;
    blocks[i / 16] = blocks[i / 16] << 4 | (digit & 15);
  }
}

ordered_json PatternHistory::save() const {
  ordered_json saved = ordered_json::object();
  for (const Matrix &matrix : matrices)
    saved[matrix.info.name] = {{"used", toText(matrix.used)},
                               {"regrown", toText(matrix.fresh)}};
  return saved;
}

void PatternHistory::restore(const ordered_json &saved) {
  if (!saved.is_object())
    return;
  for (Matrix &matrix : matrices)
    if (auto own = saved.find(matrix.info.name);
        own != saved.end() && own->is_object()) {
      fromText(own->value("used", ""), matrix.used);
      fromText(own->value("regrown", ""), matrix.fresh);
    }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes shares of what the runtime counts, of each pattern and of all.

#include "PatternStatistics.h"

#include <algorithm>
#include <numeric>
#include <set>

using namespace sparse_opt;
using namespace sparse_opt::train;
using nlohmann::ordered_json;

namespace {
struct Matrix {
  bsr_pattern_info info;
  bsr_pattern_statistics statistics;
  bool isUpdated;

  /// Elements of `blocks` blocks.
  double elements(int64_t blocks) const {
    return double(info.block_rows) * info.block_cols * blocks;
  }
  double imbalance() const {
    int64_t rows = info.rows / info.block_rows;
    return statistics.blocks
               ? double(statistics.most_in_row) * rows / statistics.blocks
               : 1;
  }
};
} // namespace

static std::vector<Matrix> readMatrices(const Session &session,
                                        const std::vector<bool> &updated) {
  std::vector<Matrix> matrices(bsr_step_num_patterns(session.step()));
  for (size_t i = 0; i < matrices.size(); ++i) {
    bsr_step_pattern(session.step(), i, &matrices[i].info);
    matrices[i].statistics = session.statistics(i);
    matrices[i].isUpdated = !updated.empty() && updated[i];
  }
  return matrices;
}

void train::describePatterns(const Session &session,
                             const std::vector<bool> &updated,
                             ordered_json &entry) {
  std::vector<Matrix> matrices = readMatrices(session, updated);
  if (matrices.empty())
    return;
  // Writes what `of` measures of each matrix, and of all: the sum of the first
  // numbers over that of the second ones, where there are some.
  auto addShare = [&](const std::string &what, auto of) {
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
  auto addCount = [&](const std::string &what,
                      int64_t bsr_pattern_statistics::*count) {
    int64_t all = 0;
    for (const Matrix &matrix : matrices) {
      if (!matrix.isUpdated)
        continue;
      int64_t own = matrix.statistics.*count;
      entry["weight_" + what][matrix.info.name] = own;
      all += own;
    }
    entry[what] = all;
  };

  addShare("density", [](const Matrix &m) {
    return std::pair(m.elements(m.statistics.blocks),
                     m.elements(m.statistics.all_blocks));
  });
  addShare("used", [](const Matrix &m) {
    return std::pair(m.elements(m.statistics.ever_stored),
                     m.elements(m.statistics.all_blocks));
  });
  if (!updated.empty()) {
    addCount("pruned", &bsr_pattern_statistics::pruned);
    addCount("regrown", &bsr_pattern_statistics::regrown);
    addShare("lost", [](const Matrix &m) {
      return m.isUpdated ? std::pair<double, double>(m.statistics.newest_pruned,
                                                     m.statistics.newest)
                         : std::pair(0.0, 0.0);
    });
  }
  double most = 0;
  for (const Matrix &matrix : matrices) {
    most = std::max(most, matrix.imbalance());
    entry["weight_imbalance"][matrix.info.name] = matrix.imbalance();
  }
  entry["imbalance"] = most;
}

double train::storedShare(const Session &session, const Ranks &ranks,
                          const Place &place,
                          const std::vector<WeightShape> &allWeights) {
  // What an earlier stage has is counted there.
  std::set<std::string> own;
  for (const WeightShape &weight : allWeights)
    if (weight.stage == place.stage)
      own.insert(weight.name);
  int64_t stored = 0, all = 0;
  for (const Matrix &matrix : readMatrices(session, {}))
    if (own.count(matrix.info.name)) {
      stored += int64_t(matrix.elements(matrix.statistics.blocks));
      all += int64_t(matrix.elements(matrix.statistics.all_blocks));
    }
  if (place.stages > 1) {
    // The first processes have a stage each.
    auto addStages = [&](int64_t number) {
      std::vector<int64_t> numbers = ranks.gather(number);
      return std::accumulate(numbers.begin(), numbers.begin() + place.stages,
                             int64_t(0));
    };
    stored = addStages(stored);
    all = addStages(all);
  }
  return all ? double(stored) / double(all) : 1;
}

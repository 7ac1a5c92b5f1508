// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a run records of its patterns and their updates: docs/runs.md.

#include "base/Status.h"
#include "support/Json.h"

#include <algorithm>
#include <optional>

using namespace sparse_opt;

using Recorded = bsr_recorded_pattern;

namespace {
/// A part of a whole.
struct Share {
  double part, whole;
};

/// What is recorded of some patterns.
class PatternRecord {
public:
  PatternRecord(const Recorded *patterns, int64_t count)
      : first(patterns), last(patterns + count) {}

  void addUpdate();
  void addPatterns(bool isUpdate);

  OrderedJson entry = OrderedJson::object();

private:
  /// Writes the share of each pattern of which `find` knows a whole, and that
  /// of all together.
  template <typename Find>
  void addShare(const std::string &what, Find find);
  /// Writes a count of each pattern that was updated, and of all of them.
  void addCount(const std::string &what,
                int64_t bsr_pattern_statistics::*count);

  const Recorded *first, *last;
};
} // namespace

/// Elements of `blocks` blocks.
static double elementsOf(const Recorded &pattern, int64_t blocks) {
  return double(pattern.block_rows) * double(pattern.block_cols) *
         double(blocks);
}

static double imbalanceOf(const Recorded &pattern) {
  const bsr_pattern_statistics &counts = pattern.statistics;
  int64_t rows = pattern.rows / pattern.block_rows;
  return counts.blocks
             ? double(counts.most_in_row) * double(rows) / double(counts.blocks)
             : 1;
}

template <typename Find>
void PatternRecord::addShare(const std::string &what, Find find) {
  Share all = {0, 0};
  std::for_each(first, last, [&](const Recorded &pattern) {
    Share own = find(pattern);
    all.part += own.part;
    all.whole += own.whole;
    if (own.whole)
      entry["weight_" + what][pattern.name] = own.part / own.whole;
  });
  if (all.whole)
    entry[what] = all.part / all.whole;
}

void PatternRecord::addCount(const std::string &what,
                             int64_t bsr_pattern_statistics::*count) {
  int64_t all = 0;
  std::for_each(first, last, [&](const Recorded &pattern) {
    if (!pattern.is_updated)
      return;
    int64_t own = pattern.statistics.*count;
    entry["weight_" + what][pattern.name] = own;
    all += own;
  });
  entry[what] = all;
}

/// Writes what is known of the update alone.
void PatternRecord::addUpdate() {
  std::optional<double> drop;
  int64_t stored = 0, pruned = 0;
  std::for_each(first, last, [&](const Recorded &pattern) {
    stored += pattern.statistics.blocks;
    if (!pattern.is_updated)
      return;
    pruned += pattern.statistics.pruned;
    stored += pattern.statistics.pruned - pattern.statistics.regrown;
    if (bsr_method_has_drop(pattern.update.method))
      drop = std::max(drop.value_or(0), pattern.update.drop);
  });
  if (drop)
    entry["drop"] = *drop;
  entry["turnover"] = stored ? double(pruned) / double(stored) : 0.0;
}

void PatternRecord::addPatterns(bool isUpdate) {
  addShare("density", [](const Recorded &pattern) -> Share {
    return {elementsOf(pattern, pattern.statistics.blocks),
            elementsOf(pattern, pattern.statistics.all_blocks)};
  });
  addShare("used", [](const Recorded &pattern) -> Share {
    return {elementsOf(pattern, pattern.statistics.ever_stored),
            elementsOf(pattern, pattern.statistics.all_blocks)};
  });
  if (isUpdate) {
    addCount("pruned", &bsr_pattern_statistics::pruned);
    addCount("regrown", &bsr_pattern_statistics::regrown);
    addShare("lost", [](const Recorded &pattern) -> Share {
      if (!pattern.is_updated)
        return {0, 0};
      return {double(pattern.statistics.newest_pruned),
              double(pattern.statistics.newest)};
    });
  }
  double most = 0;
  std::for_each(first, last, [&](const Recorded &pattern) {
    double own = imbalanceOf(pattern);
    most = std::max(most, own);
    entry["weight_imbalance"][pattern.name] = own;
  });
  entry["imbalance"] = most;
}

/// Fails unless a caller can mean `pattern`.
static void requirePattern(const Recorded &pattern) {
  requireArgument(pattern.name, "name");
  if (pattern.block_rows < 1 || pattern.block_cols < 1 ||
      pattern.rows < pattern.block_rows)
    fail("expected '", pattern.name, "' to have rows of blocks, but got ",
         pattern.rows, " rows and blocks of ", pattern.block_rows, "x",
         pattern.block_cols);
}

bsr_status bsr_record_patterns(int64_t count, const Recorded *patterns,
                               int32_t isUpdate, const char **text) {
  return guarded([&] {
    requireArgument(text, "text");
    if (count < 0)
      fail("expected a count of at least 0, but got ", count);
    if (count)
      requireArgument(patterns, "patterns");
    std::for_each_n(patterns, count, requirePattern);
    PatternRecord record(patterns, count);
    if (count && isUpdate)
      record.addUpdate();
    if (count)
      record.addPatterns(isUpdate != 0);
    static thread_local std::string last;
    last = record.entry.dump();
    *text = last.c_str();
  });
}

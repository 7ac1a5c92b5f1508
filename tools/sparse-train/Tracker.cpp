// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes metrics, events and pictures of patterns.

#include "Tracker.h"
#include "Host.h"
#include "PatternStatistics.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <set>

using namespace bsr;
using namespace bsr::train;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

static constexpr char metricsName[] = "metrics.jsonl";
static constexpr char patternsName[] = "patterns.jsonl";
static constexpr char sessionsName[] = "sessions.jsonl";

/// Most cells of a picture in a row and in a column.
static constexpr int64_t mostCells = 64;
/// How many moments and patterns are drawn.
static constexpr int64_t moments = 8, drawnPatterns = 3;

std::vector<std::string> Tracker::files() {
  return {patternsName, sessionsName, metricsName};
}

Tracker::Tracker(const fs::path &folder, const Session &session, int64_t steps,
                 int64_t done)
    : session(session), steps(steps) {
  // A run that has no checkpoint yet begins again.
  int64_t last = done ? done : -1;
  std::string path = folder / metricsName;
  lines = metrics.open(path, last, JsonLines::OneAStep);
  int64_t missing = last + 1 - int64_t(lines.size()), first = 0;
  while (first < int64_t(lines.size()) && lines[first]["step"] == first)
    ++first;
  if (missing)
    std::fprintf(stderr,
                 "warning: expected a line for each of the steps 0 to %lld in "
                 "'%s', but got none for %lld of them, the first of which is "
                 "step %lld\n",
                 (long long)last, path.c_str(), (long long)missing,
                 (long long)first);
  for (const nlohmann::json &picture :
       pictures.open(folder / patternsName, last, JsonLines::Any))
    nextPicture = int64_t(picture["step"]) * moments / steps + 1;

  JsonLines sessions;
  sessions.open(folder / sessionsName, std::numeric_limits<int64_t>::max(),
                JsonLines::Any);
  ordered_json entry = {{"step", done}};
  entry.update(describeHost());
  entry["function"] = bsr_step_name(session.step());
  entry["target_cpu"] = bsr_step_target_cpu(session.step());
  sessions.add(entry);
  events.open(folder, last + 1);
}

/// Adds the numbers of `value` to `scalars`, named by their paths.
static void flatten(const std::string &name, const ordered_json &value,
                    Scalars &scalars) {
  if (value.is_number())
    scalars.emplace_back(name, value);
  for (const auto &[key, inner] : value.items())
    if (value.is_object() && (!name.empty() || key != "step"))
      flatten(name.empty() ? key : name + "/" + key, inner, scalars);
}

void Tracker::add(const ordered_json &entry) {
  metrics.add(entry);
  Scalars scalars;
  flatten("", entry, scalars);
  events.add(entry["step"], scalars);
}

void Tracker::flush() const {
  metrics.flush();
  pictures.flush();
}

void Tracker::describePatterns(ordered_json &entry,
                               const std::vector<bool> &updated) {
  train::describePatterns(session, updated, entry);
  int64_t step = entry["step"];
  if (int64_t moment = step * moments / steps; moment >= nextPicture) {
    nextPicture = moment + 1;
    draw(step);
  }
}

/// The cells of a picture, a digit each: of the blocks that lie in the cell the
/// share that is stored, in sixteenths, "0" for none and "f" for all.
static std::vector<std::string> drawPattern(const bsr_pattern_info &info,
                                            const bsr_pattern_view &view) {
  int64_t rows = info.rows / info.block_rows;
  int64_t cols = info.cols / info.block_cols;
  int64_t height = std::min(rows, mostCells), width = std::min(cols, mostCells);
  std::vector<std::vector<int64_t>> all(height, std::vector<int64_t>(width)),
      stored = all;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t y = row * height / rows;
    for (int64_t col = 0; col < cols; ++col)
      ++all[y][col * width / cols];
    for (int32_t k = view.row_ptr[row]; k < view.row_ptr[row + 1]; ++k)
      ++stored[y][view.col_idx[k] * width / cols];
  }
  std::vector<std::string> cells(height, std::string(width, '0'));
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      cells[y][x] =
          "0123456789abcdef"[(stored[y][x] * 15 + all[y][x] - 1) / all[y][x]];
  return cells;
}

void Tracker::draw(int64_t step) {
  int64_t count = bsr_step_num_patterns(session.step());
  std::set<int64_t> drawn; // the first, the last and those between
  for (int64_t i = 0; i < drawnPatterns && count; ++i)
    drawn.insert((count - 1) * i / (drawnPatterns - 1));
  for (int64_t index : drawn) {
    bsr_pattern_info info;
    bsr_step_pattern(session.step(), index, &info);
    pictures.add({{"step", step},
                  {"name", info.name},
                  {"shape", {info.rows, info.cols}},
                  {"block", {info.block_rows, info.block_cols}},
                  {"cells", drawPattern(info, session.pattern(index))}});
  }
}

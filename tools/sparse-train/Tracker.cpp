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

using namespace sparse_opt;
using namespace sparse_opt::train;
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
                 int64_t done, const std::vector<KeyValue> &settings,
                 const std::function<void(const nlohmann::json &)> &visit)
    : session(session), steps(steps) {
  // A run that has no checkpoint yet begins again.
  int64_t last = done ? done : -1;
  std::string path = folder / metricsName;
  int64_t kept = 0, first = 0; // lines; the first step without one
  metrics.open(path, last, JsonLines::OneAStep,
               [&](const nlohmann::json &entry) {
                 ++kept;
                 first += entry["step"] == first;
                 visit(entry);
               });
  if (int64_t missing = last + 1 - kept)
    std::fprintf(stderr,
                 "warning: expected a line for each of the steps 0 to %lld in "
                 "'%s', but got none for %lld of them, the first of which is "
                 "step %lld\n",
                 (long long)last, path.c_str(), (long long)missing,
                 (long long)first);
  pictures.open(folder / patternsName, last, JsonLines::Any,
                [&](const nlohmann::json &picture) {
                  nextPicture = int64_t(picture["step"]) * moments / steps + 1;
                });

  JsonLines sessions;
  sessions.open(folder / sessionsName, std::numeric_limits<int64_t>::max(),
                JsonLines::Any);
  ordered_json entry = {{"step", done}};
  entry.update(describeHost());
  entry["function"] = bsr_step_name(session.step());
  entry["target_cpu"] = bsr_step_target_cpu(session.step());
  sessions.add(entry);
  events.open(folder, last + 1);
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto &[key, value] : settings)
    pairs.emplace_back(key, value);
  events.addSettings(pairs);
}

/// What TensorBoard calls the number that the metrics call `name`: numbers of
/// one kind are together.
static std::string tagOf(const std::string &name) {
  auto begins = [&](std::string_view with) { return name.rfind(with, 0) == 0; };
  static const std::set<std::string_view> ofPatterns = {
      "density", "used", "imbalance", "pruned",
      "regrown", "lost", "turnover",  "drop"};
  static const std::set<std::string_view> ofTime = {
      "step_time",      "batch_time",  "forward_backward_time",
      "optimizer_time", "update_time", "tokens_per_s"};
  static const std::set<std::string_view> ofSystem = {"peak_memory", "flops",
                                                      "recompilations"};
  constexpr std::string_view heldOut = "held_out", ofWeight = "weight_";
  if (name == heldOut)
    return "held_out/loss";
  if (begins("held_out_"))
    return "held_out/" + name.substr(heldOut.size() + 1);
  if (begins(ofWeight))
    return "weights/" + name.substr(ofWeight.size());
  for (auto [names, group] :
       {std::pair(&ofPatterns, "patterns/"), std::pair(&ofTime, "time/"),
        std::pair(&ofSystem, "system/")})
    if (names->count(name))
      return group + name;
  return "train/" + name;
}

/// Adds the numbers of `value` to `scalars`, named by their paths.
static void flatten(const std::string &name, const ordered_json &value,
                    Scalars &scalars) {
  if (value.is_number())
    scalars.emplace_back(tagOf(name), value);
  for (const auto &[key, inner] : value.items())
    if (value.is_object() && (!name.empty() || key != "step"))
      flatten(name.empty() ? key : name + "/" + key, inner, scalars);
}

Scalars train::scalarsOf(const ordered_json &entry) {
  Scalars scalars;
  flatten("", entry, scalars);
  return scalars;
}

void Tracker::add(const ordered_json &entry) {
  metrics.add(entry);
  events.add(entry["step"], scalarsOf(entry));
}

void Tracker::flush() const {
  // A follower of a run reads a step's pictures with its line.
  pictures.flush();
  metrics.flush();
}

void Tracker::describePatterns(ordered_json &entry,
                               const std::vector<bsr_pattern_update> *updates) {
  train::describePatterns(session, updates, entry);
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

/// The stored elements of the weight of a pattern; of a type that is not f32 or
/// f64 none.
std::vector<double> Tracker::valuesOf(const bsr_pattern_info &info) const {
  std::vector<double> values;
  const Buffer *buffer = session.find(info.name);
  if (!buffer || (buffer->type != BSR_F32 && buffer->type != BSR_F64))
    return values;
  int64_t pattern = 0;
  for (bsr_pattern_info other;; ++pattern) {
    bsr_step_pattern(session.step(), pattern, &other);
    if (other.name == std::string_view(info.name))
      break;
  }
  bsr_pattern_view view = session.pattern(pattern);
  auto read = [&](auto element) {
    std::vector<decltype(element)> all(size_t(buffer->elements));
    session.read(*buffer, all.data());
    int64_t size = info.block_rows * info.block_cols;
    for (int64_t k = 0; k < view.blocks; ++k)
      values.insert(values.end(), all.begin() + view.slot[k] * size,
                    all.begin() + (view.slot[k] + 1) * size);
  };
  if (buffer->type == BSR_F32)
    read(float());
  else
    read(double());
  return values;
}

void Tracker::draw(int64_t step) {
  int64_t count = bsr_step_num_patterns(session.step());
  std::set<int64_t> drawn; // the first, the last and those between
  for (int64_t i = 0; i < drawnPatterns && count; ++i)
    drawn.insert((count - 1) * i / (drawnPatterns - 1));
  for (int64_t index : drawn) {
    bsr_pattern_info info;
    bsr_step_pattern(session.step(), index, &info);
    std::vector<std::string> cells = drawPattern(info, session.pattern(index));
    pictures.add({{"step", step},
                  {"name", info.name},
                  {"shape", {info.rows, info.cols}},
                  {"block", {info.block_rows, info.block_cols}},
                  {"cells", cells}});
    // Stored blocks are dark, and a cell is as large as an eye needs.
    constexpr size_t least = 256;
    size_t scale = std::max<size_t>(1, least / cells.front().size());
    std::vector<std::string> rows;
    for (const std::string &line : cells) {
      std::string row;
      for (char digit : line)
        row.append(scale, char(255 - 17 * (digit <= '9' ? digit - '0'
                                                        : digit - 'a' + 10)));
      rows.insert(rows.end(), scale, row);
    }
    events.addImage(step, "patterns/" + std::string(info.name), rows);
    events.addHistogram(step, "weights/" + std::string(info.name),
                        valuesOf(info));
  }
}

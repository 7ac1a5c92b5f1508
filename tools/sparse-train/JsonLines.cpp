// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads, truncates and appends to files of JSON lines.

#include "JsonLines.h"
#include "support/Json.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

using namespace bsr;
using namespace bsr::train;
using nlohmann::json;

/// What the file is called in messages: "metrics" for "run/metrics.jsonl".
static std::string nameOf(const std::string &path) {
  return std::filesystem::path(path).stem();
}

/// The step of a line, if it is one.
static std::optional<int64_t> stepOf(const json &entry) {
  if (!entry.is_object())
    return std::nullopt;
  auto step = entry.find("step");
  if (step == entry.end() || !step->is_number_integer())
    return std::nullopt;
  // What is beyond all integers turns negative.
  int64_t value = step->get<int64_t>();
  return value < 0 ? std::nullopt : std::optional(value);
}

namespace {
struct Line {
  int64_t step;
  json entry;
  std::string_view text;
};
} // namespace

/// Orders `lines` by their steps, and leaves the last of those of one step.
/// Returns whether there was nothing to do.
static bool haveOneAStep(std::vector<Line> &lines) {
  auto isNotBefore = [](const Line &a, const Line &b) {
    return a.step >= b.step;
  };
  if (std::adjacent_find(lines.begin(), lines.end(), isNotBefore) ==
      lines.end())
    return true;
  // Of one step, in the order of the file.
  std::sort(lines.begin(), lines.end(), [](const Line &a, const Line &b) {
    return std::pair(a.step, a.text.data()) < std::pair(b.step, b.text.data());
  });
  std::vector<Line> single;
  for (Line &line : lines) {
    if (!single.empty() && single.back().step == line.step)
      single.pop_back();
    single.push_back(std::move(line));
  }
  lines = std::move(single);
  return false;
}

/// Keeps a copy of a file in which `place` is not `expected`.
static void keepCopy(const std::string &path, const std::string &contents,
                     const std::string &place, const char *expected) {
  std::string copy = nameAside(path, "damaged");
  writeFile(copy, nameOf(path), {contents});
  std::fprintf(stderr,
               "warning: expected %s of '%s' to be %s, but got another; the "
               "file is kept as '%s', and what can be read of it stays\n",
               place.c_str(), path.c_str(), expected, copy.c_str());
}

std::vector<json> JsonLines::open(const std::string &path, int64_t last,
                                  Kind kind) {
  std::string contents;
  if (std::filesystem::exists(std::filesystem::symlink_status(path)))
    contents = readFile(path, nameOf(path));
  std::vector<Line> lines;
  int64_t number = 0, bad = 0; // of lines; of the first that cannot be read
  for (std::string_view rest = contents; !rest.empty();) {
    size_t end = rest.find('\n');
    std::string_view text = rest.substr(0, end);
    bool isWhole = end != rest.npos;
    rest.remove_prefix(isWhole ? end + 1 : rest.size());
    ++number;
    json entry = parseJson(text);
    std::optional<int64_t> step = stepOf(entry);
    if (!step)
      bad = !bad && isWhole ? number : bad;
    else if (*step <= last)
      lines.push_back({*step, std::move(entry), text});
  }
  if (bad)
    keepCopy(path, contents, "line " + std::to_string(bad),
             "a JSON object with a step");
  bool isOrdered = kind == Any || haveOneAStep(lines);
  if (!bad && !isOrdered)
    keepCopy(path, contents, "the steps", "one higher with each line");

  std::string text;
  std::vector<json> kept;
  for (Line &line : lines) {
    (text += line.text) += '\n';
    kept.push_back(std::move(line.entry));
  }
  writeFile(path, nameOf(path), {text});
  file.open(path, nameOf(path));
  return kept;
}

void JsonLines::add(const nlohmann::ordered_json &entry) {
  file.write(entry.dump() + "\n");
}

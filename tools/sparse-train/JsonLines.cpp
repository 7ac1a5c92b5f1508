// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads, truncates and appends to files of JSON lines.

#include "JsonLines.h"
#include "support/Json.h"

#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

using namespace sparse_opt;
using namespace sparse_opt::train;
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

/// Keeps a copy of a file in which `place` is not `expected`.
static void keepCopy(const std::string &path, const std::string &place,
                     const char *expected) {
  std::string copy = nameAside(path, "damaged");
  copyFile(path, copy, nameOf(path));
  std::fprintf(stderr,
               "warning: expected %s of '%s' to be %s, but got another; the "
               "file is kept as '%s', and what can be read of it stays\n",
               place.c_str(), path.c_str(), expected, copy.c_str());
}

namespace {
/// The lines of a file that stay: those of step `last` or less.
class KeptLines {
public:
  KeptLines(const std::string &path, int64_t last)
      : path(path), last(last), lines(path, nameOf(path)) {
    scan();
  }

  /// The first line that cannot be read; 0 if all can.
  int64_t firstBad() const { return bad; }
  /// Whether each line is of a higher step than the one before.
  bool areOrdered() const { return isOrdered; }

  using Visit = std::function<void(std::string_view text, const json &entry)>;

  /// Calls `visit` with each line in the order of the file.
  void visit(const Visit &visit) {
    lines.seek(0);
    while (lines.next())
      visitLine(visit);
  }

  /// Calls `visit` with one line for a step, the last, in their order.
  void visitInOrder(const Visit &visit) {
    // What a file takes that is out of order, which no run writes.
    std::map<int64_t, uint64_t> offsets;
    lines.seek(0);
    while (lines.next())
      if (std::optional<int64_t> step = stepOf(parseJson(lines.text())))
        if (*step <= last)
          offsets[*step] = lines.offset();
    for (auto [step, offset] : offsets) {
      lines.seek(offset);
      if (lines.next())
        visitLine(visit);
    }
  }

private:
  void scan() {
    std::optional<int64_t> before;
    for (int64_t number = 1; lines.next(); ++number) {
      std::optional<int64_t> step = stepOf(parseJson(lines.text()));
      if (!step)
        bad = !bad && lines.isWhole() ? number : bad;
      if (!step || *step > last)
        continue;
      isOrdered &= !before || *before < *step;
      before = step;
    }
  }

  void visitLine(const Visit &visit) {
    json entry = parseJson(lines.text());
    std::optional<int64_t> step = stepOf(entry);
    if (step && *step <= last)
      visit(lines.text(), entry);
  }

  std::string path;
  int64_t last, bad = 0;
  bool isOrdered = true;
  InputLines lines;
};
} // namespace

/// Leaves the lines of the file `path` that stay, each of which is visited.
static void cut(const std::string &path, int64_t last, JsonLines::Kind kind,
                const std::function<void(const json &)> &visit) {
  KeptLines lines(path, last);
  bool isOrdered = kind == JsonLines::Any || lines.areOrdered();
  if (lines.firstBad())
    keepCopy(path, "line " + std::to_string(lines.firstBad()),
             "a JSON object with a step");
  else if (!isOrdered)
    keepCopy(path, "the steps", "one higher with each line");
  writeFile(path, nameOf(path), [&](const Sink &sink) {
    auto keep = [&](std::string_view text, const json &entry) {
      sink(text);
      sink("\n");
      visit(entry);
    };
    isOrdered ? lines.visit(keep) : lines.visitInOrder(keep);
  });
}

void JsonLines::open(const std::string &path, int64_t last, Kind kind,
                     const std::function<void(const json &)> &visit) {
  if (std::filesystem::exists(std::filesystem::symlink_status(path)))
    cut(path, last, kind, visit);
  else
    writeFile(path, nameOf(path), {""});
  file.open(path, nameOf(path));
}

void JsonLines::add(const nlohmann::ordered_json &entry) {
  file.write(entry.dump() + "\n");
}

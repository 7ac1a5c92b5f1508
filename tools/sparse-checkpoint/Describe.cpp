// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tables and pictures of checkpoints.

#include "Describe.h"
#include <cstdio>

using namespace sparse_opt;

/// The most cells of a picture in a row and in a column, and its most pixels.
static constexpr int64_t mostCells = 96;
static constexpr int64_t mostPixels = 3 * mostCells;

/// A line of text, as printf makes it.
template <typename... Values>
static std::string format(const char *pattern, Values... values) {
  std::string line(size_t(std::snprintf(nullptr, 0, pattern, values...)), '\0');
  std::snprintf(line.data(), line.size() + 1, pattern, values...);
  return line;
}

static std::string size(int64_t rows, int64_t cols) {
  return std::to_string(rows) + "x" + std::to_string(cols);
}

/// What sparse-train says of its run, a line for each key.
static std::string describeConfiguration(const std::string &metadata) {
  Json said;
  try {
    said = parseJson(metadata, BSR_INVALID_CHECKPOINT, "the metadata");
  } catch (const Error &) {
    return ""; // another program's
  }
  if (!said.is_object() || !said["configuration"].is_object())
    return "";
  std::string lines = "configuration:\n";
  for (auto &[key, value] : said["configuration"].items())
    lines +=
        "  " + printable(key) + ": " +
        printable(value.is_string() ? value.get<std::string>() : value.dump()) +
        "\n";
  return lines;
}

std::string sparse_opt::describe(const Contents &contents) {
  contents.requireCheckpoint();
  auto text = [&](const char *key) { return contents.texts.at(key); };
  std::string lines = printable(contents.file.where()) + ": step " +
                      text("steps") + ", seed " + text("seed") + ", " +
                      text("pattern_updates") + " pattern updates, " +
                      text("blocks_pruned") + " blocks pruned, " +
                      text("blocks_regrown") + " regrown\n";

  size_t width = 6, tensors = 0;
  int64_t bytes = 0, stored = 0, all = 0;
  for (auto &[name, entry] : contents.file.header().items())
    if (name != "__metadata__" && !contents.isOfPattern(name)) {
      ++tensors;
      bytes += int64_t(contents.file.read(name).data.size());
    }
  lines += format("%zu tensors, %.1f MiB\n", tensors, double(bytes) / 1048576);
  for (const Matrix &matrix : contents.matrices)
    width = std::max(width, printable(matrix.pattern.name).size());
  auto addLine = [&](const std::string &name, const std::string &shape,
                     const std::string &block, int64_t blocks, int64_t most,
                     const std::string &rest) {
    lines += format(
        "%-*s %11s %7s %9lld of %-9lld %7.3f %%%s\n", int(width), name.c_str(),
        shape.c_str(), block.c_str(), (long long)blocks, (long long)most,
        most ? 100.0 * double(blocks) / double(most) : 0.0, rest.c_str());
  };
  for (const Matrix &matrix : contents.matrices) {
    const Pattern &pattern = matrix.pattern;
    addLine(printable(pattern.name), size(pattern.rows, pattern.cols),
            size(pattern.blockRows, pattern.blockCols), matrix.blocks(),
            pattern.allBlocks(),
            format(" in %lld slots, %zu tensors", (long long)pattern.slots,
                   matrix.values.size()));
    stored += matrix.blocks();
    all += pattern.allBlocks();
  }
  if (contents.matrices.size() > 1)
    addLine("all", "", "", stored, all, "");
  return lines + describeConfiguration(text("metadata"));
}

/// `text` as XML.
static std::string escape(const std::string &text) {
  std::string escaped;
  for (char c : text)
    escaped += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return escaped;
}

/// One pattern, its upper left corner at the origin, and its size in pixels.
static std::string draw(const Matrix &matrix, int64_t &pixelHeight,
                        int64_t &pixelWidth) {
  const Pattern &pattern = matrix.pattern;
  int64_t height = std::min(pattern.gridRows(), mostCells);
  int64_t width = std::min(pattern.gridCols(), mostCells);
  int64_t cellPixels =
      std::min<int64_t>(12, mostPixels / std::max(height, width));
  pixelHeight = height * cellPixels;
  pixelWidth = width * cellPixels;
  auto cellOf = [&](int64_t row, int64_t col) {
    return size_t(row * height / pattern.gridRows() * width +
                  col * width / pattern.gridCols());
  };
  // Of `count` rows or columns, those that lie in place `index` of `cells`.
  auto countIn = [](int64_t index, int64_t cells, int64_t count) {
    auto begin = [&](int64_t i) { return (i * count + cells - 1) / cells; };
    return begin(index + 1) - begin(index);
  };
  std::vector<int64_t> stored(size_t(height * width));
  matrix.forEachBlock(
      [&](int64_t row, int64_t col, int64_t) { ++stored[cellOf(row, col)]; });

  std::string cells =
      format("<rect width=\"%lld\" height=\"%lld\" fill=\"#eef1f5\"/>\n",
             (long long)pixelWidth, (long long)pixelHeight);
  for (size_t i = 0; i < stored.size(); ++i)
    if (stored[i])
      cells += format(
          "<rect x=\"%lld\" y=\"%lld\" width=\"%lld\" "
          "height=\"%lld\" fill=\"#1f5fa8\" opacity=\"%.3g\"/>\n",
          (long long)(int64_t(i) % width * cellPixels),
          (long long)(int64_t(i) / width * cellPixels), (long long)cellPixels,
          (long long)cellPixels,
          double(stored[i]) /
              double(countIn(int64_t(i) / width, height, pattern.gridRows()) *
                     countIn(int64_t(i) % width, width, pattern.gridCols())));
  return cells;
}

std::string sparse_opt::drawPatterns(const Contents &contents,
                                     const std::vector<std::string> &names) {
  contents.requireCheckpoint();
  std::vector<const Matrix *> chosen;
  for (const std::string &name : names) {
    chosen.push_back(contents.findPattern(name));
    if (!chosen.back())
      fail(BSR_INVALID_ARGUMENT, "expected a pattern of ",
           contents.file.where(), ", but got '", name, "'");
  }
  if (names.empty())
    for (const Matrix &matrix : contents.matrices)
      chosen.push_back(&matrix);

  constexpr int64_t margin = 16, line = 18, most = 3 * mostPixels;
  std::string panels;
  int64_t x = margin, y = margin, rowHeight = 0, right = 0;
  for (const Matrix *matrix : chosen) {
    int64_t height, width;
    std::string cells = draw(*matrix, height, width);
    const Pattern &pattern = matrix->pattern;
    std::string title =
        format("%s %s, %s: %lld of %lld", escape(pattern.name).c_str(),
               size(pattern.rows, pattern.cols).c_str(),
               size(pattern.blockRows, pattern.blockCols).c_str(),
               (long long)matrix->blocks(), (long long)pattern.allBlocks());
    // Wide enough for the title, too: a letter takes some 6 pixels.
    int64_t panel = std::max<int64_t>(width, 6 * title.size());
    if (x > margin && x + panel > most) {
      x = margin;
      y += rowHeight;
      rowHeight = 0;
    }
    panels +=
        format("<g transform=\"translate(%lld %lld)\">\n<text y=\"12\">"
               "%s</text>\n<g transform=\"translate(0 %lld)\">\n",
               (long long)x, (long long)y, title.c_str(), (long long)line) +
        cells + "</g>\n</g>\n";
    x += panel + margin;
    right = std::max(right, x);
    rowHeight = std::max(rowHeight, height + line + margin);
  }
  return format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%lld\" "
                "height=\"%lld\" font-family=\"sans-serif\" font-size=\"11\">\n"
                "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                (long long)right, (long long)(y + rowHeight)) +
         panels + "</svg>\n";
}

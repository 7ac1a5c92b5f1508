// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Patterns as files.

#include "Session.h"
#include "base/Status.h"
#include "support/File.h"
#include "support/Json.h"

using namespace sparse_opt;

bsr_status bsr_session_read_pattern(bsr_session *session, int64_t index,
                                    const char *path) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(path, "path");
    session->requireDynamic(index);
    const Pattern &pattern = session->manifest().patterns[index];

    std::string where = "pattern file '" + std::string(path) + "'";
    Json json = parseJson(readFile(path), BSR_INVALID_PATTERN, where);
    JsonObject object(json, BSR_INVALID_PATTERN, where);
    if (object.text("format") != "bsr-pattern")
      object.refuse("format", "\"bsr-pattern\"");
    object.integer("version", 1, 1);
    auto requirePair = [&](const char *key, int64_t first, int64_t second) {
      if (object.integers(key, 1, INT32_MAX) != std::vector{first, second})
        object.refuse(key, "[" + std::to_string(first) + ", " +
                               std::to_string(second) + "]");
    };
    requirePair("shape", pattern.rows, pattern.cols);
    requirePair("block", pattern.blockRows, pattern.blockCols);

    std::vector<int32_t> arrays[std::size(indexKinds)];
    auto read = [&](bsr_kind kind, size_t size) {
      const char *key = bsr_kind_name(kind);
      auto numbers = object.integers(key, INT32_MIN, INT32_MAX);
      if (numbers.size() != size)
        object.refuse(key, "of size " + std::to_string(size));
      auto &array = arrays[kind - BSR_ROW_PTR];
      array.assign(numbers.begin(), numbers.end());
      array.reserve(1); // an address, even if empty
      return array.data();
    };
    auto readOptional = [&](bsr_kind kind, size_t size) {
      return object.has(bsr_kind_name(kind)) ? read(kind, size) : nullptr;
    };
    size_t blocks = object.array("col_idx").size();
    bsr_pattern_view view = {
        int64_t(blocks),
        read(BSR_ROW_PTR, size_t(pattern.gridRows()) + 1),
        read(BSR_COL_IDX, blocks),
        readOptional(BSR_SLOT, blocks),
        readOptional(BSR_COL_PTR, size_t(pattern.gridCols()) + 1),
        readOptional(BSR_ROW_IDX, blocks),
        readOptional(BSR_SLOT_T, blocks)};
    session->setPattern(index, view);
  });
}

bsr_status bsr_session_write_pattern(const bsr_session *session, int64_t index,
                                     const char *path) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(path, "path");
    requireIndex(index, int64_t(session->hasPattern.size()), "patterns");
    const Pattern &pattern = session->manifest().patterns[index];
    bsr_pattern_view view = session->view(index);
    checkPattern(pattern, view, session->scratch);
    auto array = [](const int32_t *data, int64_t size) {
      return OrderedJson(std::vector<int32_t>(data, data + size));
    };
    OrderedJson json = {
        {"format", "bsr-pattern"},
        {"version", 1},
        {"name", pattern.name},
        {"shape", {pattern.rows, pattern.cols}},
        {"block", {pattern.blockRows, pattern.blockCols}},
        {"row_ptr", array(view.row_ptr, pattern.gridRows() + 1)},
        {"col_idx", array(view.col_idx, view.blocks)},
        {"slot", array(view.slot, view.blocks)},
        {"col_ptr", array(view.col_ptr, pattern.gridCols() + 1)},
        {"row_idx", array(view.row_idx, view.blocks)},
        {"slot_t", array(view.slot_t, view.blocks)}};
    std::string text = json.dump() + "\n";
    replaceFile(path, {text});
  });
}

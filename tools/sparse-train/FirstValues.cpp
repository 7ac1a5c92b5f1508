// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads dense arrays, and packs their blocks.

#include "FirstValues.h"
#include "support/Error.h"

#include <algorithm>
#include <cstring>

using namespace sparse_opt;
using namespace sparse_opt::train;

using Extents = std::vector<int64_t>;

/// Appends the entries of `whole`, of the extents `shape`, that begin at
/// `offsets` and go as far as `sizes`, from dimension `dim` on.
static void appendSlice(const char *whole, int64_t elementBytes,
                        const Extents &shape, const Extents &offsets,
                        const Extents &sizes, size_t dim, std::string &part) {
  int64_t bytes = elementBytes; // from one place of the dimension to the next
  for (size_t i = dim + 1; i < shape.size(); ++i)
    bytes *= shape[i];
  if (dim + 1 >= shape.size()) {
    part.append(whole + (shape.empty() ? 0 : offsets[dim] * bytes),
                size_t((shape.empty() ? 1 : sizes[dim]) * bytes));
    return;
  }
  for (int64_t i = 0; i < sizes[dim]; ++i)
    appendSlice(whole + (offsets[dim] + i) * bytes, elementBytes, shape,
                offsets, sizes, dim + 1, part);
}

FirstValues::FirstValues(const std::string &path, const Session &session)
    : step(session.step()) {
  if (path.empty())
    return;
  file.emplace("file of first values", path);
  buffers = parseJson(bsr_step_manifest_text(step))["buffers"];
  if (std::none_of(
          session.buffers().begin(), session.buffers().end(),
          [&](const Buffer &buffer) { return bool(read(buffer.index)); }))
    fail("expected ", file->where(),
         " to have values of an argument of the step, as '",
         session.buffers().front().name, "', but got none");
}

std::optional<std::string> FirstValues::read(int64_t index) const {
  if (!file)
    return std::nullopt;
  bsr_buffer_info info;
  bsr_step_buffer(step, index, &info);
  const Json &entry = buffers[size_t(index)];
  bool isPart = entry.contains("origin");
  std::string name = isPart ? entry["origin"]["name"] : entry["name"];
  if (!file->has(name) || info.kind == BSR_OUTPUT ||
      info.role == std::string_view("batch"))
    return std::nullopt;
  auto type = ElementType(info.type);
  if (isPart) {
    const Json &origin = entry["origin"];
    std::string part;
    Extents shape = origin["shape"];
    appendSlice(file->read(name, type, shape).data(), bsr_type_bytes(info.type),
                shape, origin["offsets"], origin["sizes"], 0, part);
    return part;
  }
  Extents shape(info.shape, info.shape + info.rank);
  if (info.kind == BSR_VALUES) {
    bsr_pattern_info pattern;
    bsr_step_pattern(step, info.pattern, &pattern);
    shape = {pattern.rows, pattern.cols};
  }
  return std::string(file->read(name, type, shape));
}

/// The blocks of a pattern that are stored, in their slots, of the dense matrix
/// `dense`; `bytes` are those of all slots.
static std::string pack(const bsr_pattern_info &info,
                        const bsr_pattern_view &view, const std::string &dense,
                        int64_t elementBytes, int64_t bytes) {
  std::string values(size_t(bytes), '\0');
  int64_t rowBytes = info.block_cols * elementBytes;
  for (int64_t row = 0; row < info.rows / info.block_rows; ++row)
    for (int32_t k = view.row_ptr[row]; k < view.row_ptr[row + 1]; ++k)
      for (int64_t r = 0; r < info.block_rows; ++r)
        std::memcpy(
            &values[size_t((view.slot[k] * info.block_rows + r) * rowBytes)],
            &dense[size_t((row * info.block_rows + r) * info.cols *
                              elementBytes +
                          view.col_idx[k] * rowBytes)],
            size_t(rowBytes));
  return values;
}

/// The number of steps that `data`, an element of `type`, says.
static float toCount(bsr_type type, const char *data) {
  auto as = [&](auto number) {
    std::memcpy(&number, data, sizeof number);
    return float(number);
  };
  switch (type) {
  case BSR_F64:
    return as(double());
  case BSR_I32:
    return as(int32_t());
  case BSR_I64:
    return as(int64_t());
  default:
    return as(float());
  }
}

void FirstValues::writeCounts(Session &session) const {
  for (const Buffer &buffer : session.buffers()) {
    if (buffer.role != "count")
      continue;
    bsr_buffer_info info;
    bsr_step_buffer(step, buffer.index, &info);
    bsr_pattern_info pattern;
    bsr_step_pattern(step, info.pattern, &pattern);
    for (const Buffer &number : session.buffers()) {
      if (number.name + " of " + pattern.name != buffer.name)
        continue;
      if (std::optional<std::string> data = read(number.index)) {
        std::vector<float> counts(size_t(buffer.elements),
                                  toCount(number.type, data->data()));
        session.write(buffer, counts.data());
      }
    }
  }
}

void FirstValues::write(Session &session) const {
  writeCounts(session);
  for (const Buffer &buffer : session.buffers()) {
    std::optional<std::string> dense = read(buffer.index);
    if (!dense)
      continue;
    bsr_buffer_info info;
    bsr_step_buffer(step, buffer.index, &info);
    if (info.kind == BSR_VALUES) {
      bsr_pattern_info pattern;
      bsr_step_pattern(step, info.pattern, &pattern);
      int64_t bytes = bsr_type_bytes(buffer.type);
      *dense = pack(pattern, session.pattern(info.pattern), *dense, bytes,
                    buffer.elements * bytes);
    }
    session.write(buffer, dense->data());
  }
}

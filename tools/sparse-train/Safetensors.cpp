// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The format is a length of 8 bytes, a header in JSON, and the tensors' bytes.

#include "Safetensors.h"
#include "Json.h"
#include "Support.h"

#include <cstring>

using namespace bsr;
using nlohmann::json;

/// The name of a floating-point type in the format.
static const char *typeName(bsr_type type) {
  switch (type) {
  case BSR_F16:
    return "F16";
  case BSR_BF16:
    return "BF16";
  case BSR_F64:
    return "F64";
  default:
    return "F32";
  }
}

Safetensors::Safetensors(const std::string &path)
    : path(path), file(readFile(path, "safetensors file")) {
  uint64_t size = 0;
  std::memcpy(&size, file.data(), std::min<size_t>(file.size(), 8));
  if (file.size() >= 8 && size <= file.size() - 8)
    header = parseJson(std::string_view(file).substr(8, size));
  if (!header.is_object())
    fail("expected '", path, "' to be a safetensors file, but got ",
         file.size(), " bytes without such a header");
  dataStart = 8 + size;
}

std::string Safetensors::read(const std::string &name, bsr_type type,
                              const std::vector<int64_t> &shape) const {
  auto entry = header.find(name);
  if (entry == header.end())
    fail("expected tensor '", name, "' in '", path, "', but got none");
  uint64_t bytes = uint64_t(bsr_type_bytes(type));
  for (int64_t size : shape)
    bytes *= uint64_t(size);
  json expected = {{"dtype", typeName(type)}, {"shape", shape}};
  json found = {{"dtype", nullptr}, {"shape", nullptr}};
  if (entry->is_object())
    for (auto &[key, value] : found.items())
      value = entry->value(key, json());
  if (found != expected)
    fail("expected tensor '", name, "' in '", path, "' to be ", expected.dump(),
         ", but got ", found.dump());
  json offsets = entry->value("data_offsets", json());
  bool valid = offsets.is_array() && offsets.size() == 2 &&
               offsets[0].is_number_unsigned() &&
               offsets[1].is_number_unsigned();
  uint64_t start = valid ? offsets[0].get<uint64_t>() : 0;
  uint64_t end = valid ? offsets[1].get<uint64_t>() : 0;
  if (!valid || start > end || end - start != bytes ||
      end > file.size() - dataStart)
    fail("expected the data of tensor '", name, "' in '", path, "' to be ",
         bytes, " of its ", file.size() - dataStart, " bytes, but got ",
         offsets.dump());
  return file.substr(dataStart + start, bytes);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads .npy files that anybody may have made.

#include "NumpyArray.h"
#include "Error.h"
#include <algorithm>
#include <charconv>
#include <optional>

using namespace sparse_opt;

namespace {
/// The header of an npy file: a literal of a dictionary of Python with three
/// keys.
class NpyHeader {
public:
  NpyHeader(std::string_view text, const std::string &where)
      : text(text), where(where) {}

  /// What stands behind `'key':` up to `end`.
  std::string_view value(std::string_view key, char end) const {
    std::string quoted = "'" + std::string(key) + "':";
    size_t at = text.find(quoted);
    if (at == text.npos)
      refuse(key);
    at = text.find_first_not_of(' ', at + quoted.size());
    if (at == text.npos)
      refuse(key);
    size_t stop = text.find(end, at + 1);
    if (stop == text.npos)
      refuse(key);
    return text.substr(at, stop - at);
  }

  [[noreturn]] void refuse(std::string_view key) const {
    fail("expected ", where, " to have '", key,
         "' in a header as NumPy writes it, but got '",
         text.substr(0, std::min<size_t>(text.size(), 100)), "'");
  }

private:
  std::string_view text;
  const std::string &where;
};
} // namespace

/// The type that NumPy calls `descr`: "<f4".
static std::optional<ElementType> typeOf(std::string_view descr) {
  static constexpr struct {
    std::string_view descr;
    ElementType type;
  } types[] = {{"<f2", ElementType::F16},  {"<f4", ElementType::F32},
               {"<f8", ElementType::F64},  {"|b1", ElementType::I1},
               {"|i1", ElementType::I8},   {"<i4", ElementType::I32},
               {"<i8", ElementType::I64},  {"|u1", ElementType::UI8},
               {"<u4", ElementType::UI32}, {"<u8", ElementType::UI64}};
  for (const auto &known : types)
    if (known.descr == descr)
      return known.type;
  return std::nullopt;
}

NumpyArray sparse_opt::parseNpy(std::string_view contents,
                                const std::string &where) {
  constexpr std::string_view magic = "\x93NUMPY";
  auto byte = [&](size_t i) { return size_t(uint8_t(contents[i])); };
  if (contents.size() < 12 || contents.substr(0, magic.size()) != magic)
    fail("expected ", where,
         " to be an array of NumPy's, but got a file that begins otherwise");
  size_t version = byte(6), head = version == 1 ? 10 : 12;
  if (version < 1 || version > 3)
    fail("expected ", where, " to be of version 1 to 3, but got ", version);
  size_t length = byte(8) | byte(9) << 8;
  if (version > 1)
    length |= byte(10) << 16 | byte(11) << 24;
  if (length > contents.size() - head)
    fail("expected the header of ", where, " to fit into its ", contents.size(),
         " bytes, but got a length of ", length);
  NpyHeader header(contents.substr(head, length), where);
  std::string_view descr = header.value("descr", ',');
  if (descr.size() > 2 && descr.front() == '\'' && descr.back() == '\'')
    descr = descr.substr(1, descr.size() - 2);
  std::optional<ElementType> type = typeOf(descr);
  if (!type)
    fail("expected elements of ", where,
         " to be little-endian numbers of a type that steps know, but got ",
         descr);
  if (header.value("fortran_order", ',') != "False")
    fail("expected ", where,
         " to be in C order, but got one in Fortran's: save "
         "numpy.ascontiguousarray(array)");
  NumpyArray array = {*type, {}, ""};
  std::string_view shape = header.value("shape", ')');
  if (shape.empty() || shape.front() != '(')
    header.refuse("shape");
  int64_t elements = 1;
  for (shape.remove_prefix(1); !shape.empty();) {
    int64_t extent = 0;
    auto parsed =
        std::from_chars(shape.data(), shape.data() + shape.size(), extent);
    if (parsed.ec != std::errc() || extent < 0 ||
        (extent && elements > INT64_MAX / 8 / extent))
      header.refuse("shape");
    elements *= extent;
    array.shape.push_back(extent);
    shape.remove_prefix(size_t(parsed.ptr - shape.data()));
    shape.remove_prefix(std::min(shape.find_first_not_of(", "), shape.size()));
  }
  std::string_view data = contents.substr(head + length);
  if (int64_t(data.size()) != elements * bytesOf(*type))
    fail("expected ", where, " to hold ", elements * bytesOf(*type),
         " bytes of elements, but got ", data.size());
  array.data = data;
  return array;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads data sets of arrays.

#include "Arrays.h"
#include "Files.h"
#include "support/Error.h"
#include "support/Hash.h"
#include "support/TensorFile.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

using namespace bsr;
using namespace bsr::train;
namespace fs = std::filesystem;

int64_t ExampleArray::bytesPerExample() const {
  return int64_t(data.size()) / examples();
}

const ExampleArray *Arrays::find(const std::string &name) const {
  auto found = arrays.find(name);
  return found == arrays.end() ? nullptr : &found->second;
}

uint64_t Arrays::checksum() const {
  std::string sums;
  for (const auto &[name, array] : arrays) {
    sums += name + '\0' + nameOf(array.type);
    for (int64_t extent : array.shape)
      sums += ' ' + std::to_string(extent);
    sums += ' ' + std::to_string(xxh64(array.data)) + '\n';
  }
  return xxh64(sums);
}

void Arrays::add(const std::string &path, const std::string &name,
                 ExampleArray array) {
  if (array.shape.empty() || array.data.empty())
    fail("expected array '", name, "' of '", path,
         "' to have an example in each place of its first dimension, but got ",
         array.shape.empty() ? "a number" : "no elements");
  bool isHeldOut = name.rfind(heldOutPrefix, 0) == 0;
  int64_t &examples = isHeldOut ? heldOut : train;
  if (examples && examples != array.examples())
    fail("expected ", examples, isHeldOut ? " held-out" : "",
         " examples in array '", name, "' of '", path,
         "', as the others have, but got ", array.examples());
  examples = array.examples();
  arrays.emplace(name, std::move(array));
}

/// The tokens of the header of an npy file: a literal of a dictionary of Python
/// with three keys.
namespace {
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

ExampleArray train::parseNpy(std::string_view contents,
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
  ExampleArray array = {*type, {}, ""};
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

Arrays Arrays::read(const std::string &path) {
  Arrays read;
  if (fs::is_directory(path)) {
    std::vector<fs::path> files;
    for (const fs::directory_entry &entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".npy")
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path &file : files)
      read.add(path, file.stem(),
               parseNpy(readFile(file, "array"), "'" + file.string() + "'"));
  } else {
    TensorFile file("data set", path);
    for (const auto &entry : file.header().items()) {
      if (entry.key() == "__metadata__")
        continue;
      Tensor tensor = file.read(entry.key());
      read.add(path, tensor.name,
               {tensor.type, tensor.shape, std::string(tensor.data)});
    }
  }
  if (!read.train)
    fail("expected '", path,
         "' to be a safetensors file or a folder with .npy files of examples "
         "to train on, but got none");
  return read;
}

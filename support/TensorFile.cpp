// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads safetensors files that anybody may have made, and writes them.

#include "TensorFile.h"
#include "Hash.h"
#include <algorithm>
#include <array>
#include <cstring>

using namespace sparse_opt;

/// The longest header that other libraries read.
static constexpr uint64_t longestHeader = 100'000'000;

/// The checksum's place holder: the digits of the hash are put in afterwards.
static constexpr std::string_view noChecksum = "0000000000000000";

/// What precedes the digits of the checksum in a header. It stands nowhere
/// else: within a string its quotes would be escaped.
static constexpr std::string_view checksumKey = "\"checksum\":\"";

TensorFile::TensorFile(const char *noun, const std::string &path,
                       int64_t mostBytes)
    : place(std::string(noun) + " '" + path + "'") {
  InputFile file(path);
  head = file.read(std::min<uint64_t>(file.size(), 8));
  uint64_t size = 0;
  std::memcpy(&size, head.data(), head.size());
  if (head.size() < 8 || size > file.size() - 8)
    fail(InvalidTensors, "expected the header of ", place, " to fit into its ",
         file.size(), " bytes, but got a length of ", size);
  if (size > longestHeader)
    fail(InvalidTensors, "expected the header of ", place, " to have at most ",
         longestHeader, " bytes, but got ", size);
  head += file.read(size);
  entries = parseJson(std::string_view(head).substr(8), InvalidTensors,
                      "the header of " + place);
  requireSize(int64_t(file.size() - head.size()), mostBytes);
  data = file.read(file.size() - head.size());
}

/// Fails if there are `bytes` of tensors, and the header speaks of far less, or
/// they are far more than anybody wants to read. What is nearly right is read,
/// and refused for what is wrong.
void TensorFile::requireSize(int64_t bytes, int64_t mostBytes) const {
  auto isFarMore = [&](int64_t limit) { return bytes / 2 - (1 << 20) > limit; };
  if (isFarMore(mostBytes))
    fail(InvalidTensors, "expected the tensors of ", place, " to have at most ",
         mostBytes, " bytes, but got ", bytes);
  if (!entries.is_object())
    return; // refused where it is read
  int64_t end = 0;
  for (const Json &entry : entries)
    if (entry.is_object() && entry.contains("data_offsets"))
      for (const Json &offset : entry["data_offsets"])
        if (offset.is_number_integer())
          end = std::max(end, offset.get<int64_t>());
  if (isFarMore(end))
    fail(InvalidTensors, "expected the tensors of ", place,
         " to follow one another to the end, but got one that ends at byte ",
         end, ", and byte ", bytes, " after it");
}

JsonObject TensorFile::metadata() const {
  return JsonObject(entries, InvalidTensors, "the header of " + place)
      .object("__metadata__");
}

void TensorFile::requireChecksum() const {
  JsonObject texts = metadata();
  std::string found = texts.text("checksum");
  size_t digits = head.find(std::string(checksumKey) + found + '"');
  if (found.size() != noChecksum.size() || digits == std::string::npos)
    texts.refuse("checksum", "16 hexadecimal digits");
  digits += checksumKey.size();
  Hasher hash;
  hash.add(head.data(), digits);
  hash.add(noChecksum.data(), noChecksum.size());
  digits += noChecksum.size();
  hash.add(head.data() + digits, head.size() - digits);
  hash.add(data.data(), data.size());
  if (hexadecimal(hash.value()) != found)
    fail(InvalidTensors, "expected the contents of ", place,
         " to have the checksum ", found, ", but got ",
         hexadecimal(hash.value()));
}

JsonObject TensorFile::entry(const std::string &name) const {
  auto found = entries.find(name);
  if (found == entries.end())
    fail(InvalidTensors, "expected tensor '", name, "' in ", place,
         ", but got none");
  return JsonObject(*found, InvalidTensors,
                    "tensor '" + name + "' of " + place);
}

std::string_view TensorFile::dataOf(const JsonObject &entry,
                                    int64_t bytes) const {
  int64_t room = int64_t(data.size());
  auto offsets = entry.integers("data_offsets", 0, room);
  if (offsets.size() != 2 || offsets[1] - offsets[0] != bytes)
    entry.refuse("data_offsets",
                 "a start and an end " + std::to_string(bytes) + " bytes on");
  return std::string_view(data).substr(size_t(offsets[0]), size_t(bytes));
}

std::string_view TensorFile::read(const std::string &name, ElementType type,
                                  const std::vector<int64_t> &shape) const {
  JsonObject entry = this->entry(name);
  if (entry.text("dtype") != safetensorsNameOf(type))
    entry.refuse("dtype", std::string("\"") + safetensorsNameOf(type) + "\"");

  auto sizes = entry.integers("shape", 0, INT64_MAX);
  int64_t bytes = bytesOf(type);
  bool matches = sizes.size() == shape.size();
  for (size_t i = 0; matches && i < shape.size(); ++i) {
    matches =
        sizes[i] == shape[i] || (shape[i] == anySize && sizes[i] <= INT32_MAX);
    bytes *= matches ? sizes[i] : 0;
  }
  if (!matches)
    entry.refuse("shape", shape == std::vector{anySize} ? "one size"
                                                        : Json(shape).dump());
  return dataOf(entry, bytes);
}

Tensor TensorFile::read(const std::string &name) const {
  JsonObject entry = this->entry(name);
  std::string type = entry.text("dtype");
  auto found = std::find_if(
      std::begin(elementTypes), std::end(elementTypes),
      [&](const auto &known) { return type == known.safetensorsName; });
  if (found == std::end(elementTypes))
    entry.refuse("dtype",
                 "F16, BF16, F32, F64, BOOL, I8, I32, I64, U8, U32 or U64");
  Tensor tensor = {name,
                   ElementType(found - elementTypes),
                   entry.integers("shape", 0, INT64_MAX),
                   {}};
  int64_t bytes = bytesOf(tensor.type);
  for (int64_t size : tensor.shape)
    if (__builtin_mul_overflow(bytes, size, &bytes))
      entry.refuse("shape", "of a tensor that memory can hold");
  tensor.data = dataOf(entry, bytes);
  return tensor;
}

void TensorFile::requireCovered() const {
  std::vector<std::array<int64_t, 2>> parts;
  for (auto &[name, value] : entries.items()) {
    if (name == "__metadata__")
      continue;
    std::string_view own = read(name).data;
    int64_t start = own.data() - data.data();
    parts.push_back({start, start + int64_t(own.size())});
  }
  int64_t end = 0;
  std::sort(parts.begin(), parts.end());
  parts.push_back({int64_t(data.size()), 0});
  for (auto &[start, next] : parts) {
    if (start != end)
      fail(InvalidTensors, "expected the tensors of ", place,
           " to follow one another to the end, but got one that ends at byte ",
           end, ", and byte ", start, " after it");
    end = next;
  }
}

/// The bytes of `tensor`.
static int64_t bytesOfTensor(const Tensor &tensor) {
  int64_t bytes = bytesOf(tensor.type);
  for (int64_t size : tensor.shape)
    bytes *= size;
  return bytes;
}

static void writeTensor(const Tensor &tensor, const Sink &sink) {
  if (tensor.write)
    tensor.write(sink);
  else
    sink(tensor.data);
}

/// The length and the JSON that precede `tensors`, without the checksum.
static std::string makeHeader(const std::string &path, OrderedJson metadata,
                              const std::vector<Tensor> &tensors) {
  if (metadata.contains("checksum"))
    metadata["checksum"] = noChecksum;
  std::string text = "{\"__metadata__\":" + metadata.dump();
  int64_t offset = 0;
  for (const Tensor &tensor : tensors) {
    int64_t end = offset + bytesOfTensor(tensor);
    OrderedJson entry = {{"dtype", safetensorsNameOf(tensor.type)},
                         {"shape", tensor.shape},
                         {"data_offsets", {offset, end}}};
    text += "," + OrderedJson(tensor.name).dump() + ":" + entry.dump();
    offset = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  uint64_t size = text.size();
  if (size > longestHeader)
    fail(InvalidArgument, "expected names, shapes and metadata for '", path,
         "' that fit into a header of ", longestHeader, " bytes, but got ",
         size);
  return std::string(reinterpret_cast<const char *>(&size), 8) + text;
}

void sparse_opt::writeTensors(const std::string &path, OrderedJson metadata,
                              std::vector<Tensor> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const Tensor &a, const Tensor &b) {
              return bytesOf(a.type) == bytesOf(b.type)
                         ? a.name < b.name
                         : bytesOf(a.type) > bytesOf(b.type);
            });
  std::string header = makeHeader(path, std::move(metadata), tensors);
  if (size_t key = header.find(checksumKey); key != std::string::npos) {
    Hasher checksum;
    auto add = [&](std::string_view bytes) {
      checksum.add(bytes.data(), bytes.size());
    };
    add(header);
    for (const Tensor &tensor : tensors)
      writeTensor(tensor, add);
    hexadecimal(checksum.value())
        .copy(&header[key + checksumKey.size()], noChecksum.size());
  }
  replaceFile(path, [&](const Sink &sink) {
    sink(header);
    for (const Tensor &tensor : tensors)
      writeTensor(tensor, sink);
  });
}

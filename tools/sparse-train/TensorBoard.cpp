// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Encodes the few fields of TensorBoard's protocol buffers that numbers,
// pictures, distributions and settings need.

#include "TensorBoard.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <unistd.h>

using namespace sparse_opt;
using namespace sparse_opt::train;
namespace fs = std::filesystem;

static constexpr char prefix[] = "events.out.tfevents.";
/// The largest number in a name that another may follow: ten digits order as
/// text.
static constexpr long long mostNumber = 9999999998;

//===----------------------------------------------------------------------===//
// Protocol buffers
//===----------------------------------------------------------------------===//

namespace {
/// How a field is encoded.
enum WireType { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };
} // namespace

static std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7)
    bytes += char(value | 0x80);
  return bytes += char(value);
}

static std::string tag(int number, WireType type) {
  return varint(number << 3 | type);
}

/// The bytes of `value` in memory, which is little-endian.
template <typename T>
static std::string bytesOf(T value) {
  return std::string(reinterpret_cast<const char *>(&value), sizeof(value));
}

static std::string bytesField(int number, const std::string &bytes) {
  return tag(number, Bytes) + varint(bytes.size()) + bytes;
}

//===----------------------------------------------------------------------===//
// Records
//===----------------------------------------------------------------------===//

uint32_t train::crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> entries;
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t entry = i;
      for (int bit = 0; bit < 8; ++bit)
        entry = entry >> 1 ^ (entry & 1 ? 0x82f63b78u : 0);
      entries[i] = entry;
    }
    return entries;
  }();
  uint32_t crc = ~0u;
  for (unsigned char byte : bytes)
    crc = crc >> 8 ^ table[(crc ^ byte) & 0xff];
  return ~crc;
}

static std::string checksum(std::string_view bytes) {
  uint32_t crc = crc32c(bytes);
  return bytesOf<uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8u);
}

/// Event: 1 wall_time (double), 2 step (int64), then one of the fields below.
void EventFile::write(int64_t step, const std::string &fields) {
  double now = std::chrono::duration<double>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count();
  std::string event =
      tag(1, Fixed64) + bytesOf(now) + tag(2, Varint) + varint(step) + fields;
  std::string length = bytesOf<uint64_t>(event.size());
  file.write(length + checksum(length) + event + checksum(event));
}

/// source_metadata {writer (1)}: the program that wrote the file.
static std::string sourceField() {
  return bytesField(10, bytesField(1, "sparse-train"));
}

/// No first event of ours is longer.
static constexpr size_t longestFirst = 128;

/// Whether `name` is that of an event file.
static bool isEventFile(const std::string &name) {
  return name.rfind(prefix, 0) == 0;
}

/// The number in the name of the next event file of `folder`: the time. It is
/// larger than those that are there, also where the clock went back, since
/// TensorBoard reads the files of a folder in the order of their names.
static long long nextNumber(const fs::path &folder) {
  long long number = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
  for (const fs::directory_entry &entry : fs::directory_iterator(folder))
    if (std::string name = entry.path().filename(); isEventFile(name)) {
      long long other = std::atoll(name.c_str() + std::strlen(prefix));
      if (other <= mostNumber)
        number = std::max(number, other + 1);
    }
  return number;
}

void EventFile::open(const fs::path &folder, int64_t first) {
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  char number[32];
  std::snprintf(number, sizeof(number), "%010lld", nextNumber(folder));
  file.create(folder / (prefix + std::string(number) + "." + host),
              "event file");
  write(0, bytesField(3, "brain.Event:2") + sourceField()); // file_version
  // session_log {status (1): START (1)} voids older events from this step on.
  write(first, bytesField(7, tag(1, Varint) + varint(1)));
}

void EventFile::add(int64_t step, const Scalars &scalars) {
  // Summary.Value: 1 tag (string), 2 simple_value (float).
  std::string summary;
  for (const auto &[name, value] : scalars)
    summary += bytesField(1, bytesField(1, name) + tag(2, Fixed32) +
                                 bytesOf(float(value)));
  write(step, bytesField(5, summary));
}

/// Summary.Value: 1 tag (string), and a field of its kind.
static std::string valueField(const std::string &name,
                              const std::string &field) {
  return bytesField(5, bytesField(1, bytesField(1, name) + field));
}

/// The bytes of `value`, the most significant one first.
static std::string bigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes += char(value >> shift);
  return bytes;
}

/// CRC-32 (ISO 3309) of `bytes`.
static uint32_t crc32(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (unsigned char byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

/// `data` as zlib has it (RFC 1950, 1951), in blocks that are stored as they
/// are: pictures are small.
static std::string stored(std::string_view data) {
  std::string text = "\x78\x01";
  uint32_t a = 1, b = 0;
  for (unsigned char byte : data) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  constexpr size_t most = 65535;
  for (bool isLast = false; !isLast;) {
    std::string_view block = data.substr(0, most);
    data.remove_prefix(block.size());
    isLast = data.empty();
    auto size = uint16_t(block.size());
    text += char(isLast);
    text += bytesOf(size) + bytesOf(uint16_t(~size));
    text += block;
  }
  return text + bigEndian(b << 16 | a);
}

/// A PNG of grey values (ISO/IEC 15948).
static std::string encodePNG(const std::vector<std::string> &rows) {
  std::string png = "\x89PNG\r\n\x1a\n";
  auto add = [&](const std::string &type, const std::string &data) {
    png += bigEndian(uint32_t(data.size())) + type + data +
           bigEndian(crc32(type + data));
  };
  std::string head = bigEndian(uint32_t(rows.front().size())) +
                     bigEndian(uint32_t(rows.size()));
  // 8 bits, grey; the usual compression and filter, not interlaced.
  add("IHDR", head + std::string("\x08\0\0\0\0", 5));
  std::string lines;
  for (const std::string &row : rows)
    lines += '\0' + row; // not filtered
  add("IDAT", stored(lines));
  add("IEND", "");
  return png;
}

void EventFile::addImage(int64_t step, const std::string &name,
                         const std::vector<std::string> &rows) {
  // Image: 1 height, 2 width, 3 colorspace (1: grey), 4 encoded.
  std::string image = tag(1, Varint) + varint(rows.size()) + tag(2, Varint) +
                      varint(rows.front().size()) + tag(3, Varint) + varint(1) +
                      bytesField(4, encodePNG(rows));
  write(step, valueField(name, bytesField(4, image)));
}

void EventFile::addHistogram(int64_t step, const std::string &name,
                             const std::vector<double> &values) {
  constexpr int buckets = 30;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  double count = 0, sum = 0, squares = 0;
  for (double value : values) {
    if (!std::isfinite(value))
      continue;
    least = std::min(least, value);
    most = std::max(most, value);
    ++count;
    sum += value;
    squares += value * value;
  }
  if (!count)
    return;
  double width = (most - least) / buckets;
  std::array<double, buckets> counts = {};
  for (double value : values)
    if (std::isfinite(value))
      ++counts[size_t(
          width > 0 ? std::min((value - least) / width, double(buckets - 1))
                    : 0)];
  std::string limits, heights;
  for (int i = 0; i < buckets; ++i) {
    limits += bytesOf(i + 1 < buckets ? least + width * (i + 1) : most);
    heights += bytesOf(counts[size_t(i)]);
  }
  // HistogramProto: 1 min, 2 max, 3 num, 4 sum, 5 sum_squares, 6 the upper
  // limits of buckets, 7 their heights.
  std::string histogram;
  int field = 0;
  for (double number : {least, most, count, sum, squares})
    histogram += tag(++field, Fixed64) + bytesOf(number);
  histogram += bytesField(6, limits) + bytesField(7, heights);
  write(step, valueField(name, bytesField(5, histogram)));
}

void EventFile::addSettings(
    const std::vector<std::pair<std::string, std::string>> &settings) {
  // SessionStartInfo: 1 hparams, a map to Value: 2 number, 3 text, 4 flag.
  std::string start;
  for (const auto &[name, text] : settings) {
    char *end;
    double number = std::strtod(text.c_str(), &end);
    bool isNumber = !text.empty() && !*end, isFlag = text == "true";
    std::string value =
        isNumber ? tag(2, Fixed64) + bytesOf(number)
        : isFlag || text == "false"
            ? tag(4, Varint) + varint(isFlag)
            : bytesField(3, text.size() > 1 && text.front() == '"' &&
                                    text.back() == '"'
                                ? text.substr(1, text.size() - 2)
                                : text);
    start += bytesField(1, bytesField(1, name) + bytesField(2, value));
  }
  // HParamsPluginData: 1 version, 3 session_start_info. SummaryMetadata: 1
  // plugin_data {1 plugin_name, 2 content}. The value is a tensor of nothing.
  std::string content = tag(1, Varint) + varint(0) + bytesField(3, start);
  std::string plugin = bytesField(1, "hparams") + bytesField(2, content);
  std::string tensor = tag(1, Varint) + varint(1) + bytesField(2, "");
  write(0, valueField("_hparams_/session_start_info",
                      bytesField(8, tensor) +
                          bytesField(9, bytesField(1, plugin))));
}

std::vector<fs::path> EventFile::find(const fs::path &folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder))
    if (isEventFile(entry.path().filename()) && entry.is_regular_file()) {
      std::string start(longestFirst, '\0');
      std::ifstream file(entry.path(), std::ios::binary);
      file.read(start.data(), start.size());
      if (start.find(sourceField()) != std::string::npos)
        files.push_back(entry.path());
    }
  return files;
}

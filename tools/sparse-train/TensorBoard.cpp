// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Encodes the few fields of TensorBoard's protocol buffers that scalars need.

#include "TensorBoard.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <unistd.h>

using namespace bsr;
using namespace bsr::train;
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

/// source_metadata {writer (1)}: who wrote the file.
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

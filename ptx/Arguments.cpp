// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Arguments.h"
#include "Rounding.h"
#include "support/Error.h"
#include "support/Hash.h"
#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

using namespace ptx;

const char *const ptx::argumentHelp =
    R"(  TYPE:VALUE        a scalar, such as u32:5, f32:0.5
  in:TYPE:VALUES    the address of a buffer
  inout:TYPE:VALUES the same, printed after the run
  out:TYPE:COUNT    a buffer without values, printed after the run
  zero:TYPE:COUNT   a buffer of zeros, printed after the run
  map:TYPE:SIZES:BOX:SWIZZLE:VALUES
                    the 128 bytes that describe a tensor of SIZES, such as 64x32
                    (neighbours first), to bulk copies of BOX; SWIZZLE is 0, 32,
                    64 or 128
  mapio:TYPE:SIZES:BOX:SWIZZLE:VALUES
                    the same, whose tensor is printed after the run

TYPE is u8, u16, u32, u64, s8, s16, s32, s64, f16, bf16, f32 or f64; b8 to b64 are
printed in hexadecimal. VALUES is one of

  1,2,3             numbers
  @FILE             the bytes of a file
  random(SEED,N)    of real types from -1 to 1, of others from 0 to 999
  iota(N)           0, 1, 2, ...
)";

namespace {
enum Kind { Unsigned, Signed, Bits, Half16, Brain16, Single32, Double64 };

struct TypeEntry {
  const char *name;
  Kind kind;
  unsigned bytes;
};
} // namespace
static const TypeEntry types[] = {
    {"u8", Unsigned, 1},  {"u16", Unsigned, 2}, {"u32", Unsigned, 4},
    {"u64", Unsigned, 8}, {"s8", Signed, 1},    {"s16", Signed, 2},
    {"s32", Signed, 4},   {"s64", Signed, 8},   {"b8", Bits, 1},
    {"b16", Bits, 2},     {"b32", Bits, 4},     {"b64", Bits, 8},
    {"f16", Half16, 2},   {"bf16", Brain16, 2}, {"f32", Single32, 4},
    {"f64", Double64, 8}};

static unsigned findType(const std::string &name) {
  for (unsigned i = 0; i < std::size(types); ++i)
    if (name == types[i].name)
      return i;
  sparse_opt::fail("expected a type of an argument, but got '", name, "'");
}

static uint64_t readCount(const std::string &text) {
  char *end = nullptr;
  errno = 0;
  uint64_t count = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || text[0] < '0' || text[0] > '9' || *end || errno ||
      count == 0 || count > 1u << 28)
    sparse_opt::fail("expected a number of 1 to 268435456, but got '", text,
                     "'");
  return count;
}

/// The bits of a number as it is written; 0x begins bits of any type.
static uint64_t readNumber(const TypeEntry &type, const std::string &text) {
  char *end = nullptr;
  errno = 0;
  uint64_t bits = 0;
  bool real = type.kind >= Half16;
  if (real && text.compare(0, 2, "0x") != 0) {
    double value = std::strtod(text.c_str(), &end);
    switch (type.kind) {
    case Half16:
      bits = toHalf(value).bits;
      break;
    case Brain16:
      bits = toBFloat(value, Round::Nearest).bits;
      break;
    case Single32:
      bits = bitsOf(float(value));
      break;
    default:
      bits = bitsOf(value);
      break;
    }
    errno = 0;
  } else if (!text.empty() && text[0] == '-') {
    bits = uint64_t(std::strtoll(text.c_str(), &end, 0));
  } else {
    bits = std::strtoull(text.c_str(), &end, 0);
  }
  if (text.empty() || *end || errno)
    sparse_opt::fail("expected a number of type ", type.name, ", but got '",
                     text, "'");
  return bits;
}

/// SplitMix64.
static uint64_t nextRandom(uint64_t &state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

static std::vector<std::string> split(const std::string &text, char at) {
  std::vector<std::string> parts(1);
  for (char c : text)
    if (c == at)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

static std::vector<uint8_t> readValues(const TypeEntry &type,
                                       const std::string &text) {
  std::vector<uint8_t> bytes;
  auto push = [&](uint64_t bits) {
    for (unsigned i = 0; i < type.bytes; ++i)
      bytes.push_back(uint8_t(bits >> (8 * i)));
  };
  if (text[0] == '@') {
    std::ifstream file(text.substr(1), std::ios::binary);
    if (!file)
      sparse_opt::fail("expected file '", text.substr(1),
                       "' to be readable, but got none");
    while (file) {
      constexpr size_t piece = 1 << 20;
      size_t size = bytes.size();
      bytes.resize(size + piece);
      file.read(reinterpret_cast<char *>(&bytes[size]), piece);
      bytes.resize(size + size_t(file.gcount()));
    }
    if (bytes.empty() || bytes.size() % type.bytes)
      sparse_opt::fail("expected values of ", type.bytes, " bytes in '",
                       text.substr(1), "', but got ", bytes.size(), " bytes");
    return bytes;
  }
  bool random = text.compare(0, 7, "random(") == 0,
       iota = text.compare(0, 5, "iota(") == 0;
  if ((random || iota) && text.back() == ')') {
    std::string inside = text.substr(random ? 7 : 5);
    inside.pop_back();
    std::vector<std::string> parts = split(inside, ',');
    if (parts.size() != (random ? 2u : 1u))
      sparse_opt::fail("expected random(SEED,N) or iota(N), but got '", text,
                       "'");
    uint64_t state = random ? readNumber(types[3], parts[0]) : 0,
             count = readCount(parts.back());
    for (uint64_t i = 0; i < count; ++i) {
      double value =
          random ? double(nextRandom(state) >> 40) * 0x1p-23 - 1 : double(i);
      if (type.kind < Half16)
        push(random ? (nextRandom(state) >> 40) % 1000 : i);
      else if (type.kind == Half16)
        push(toHalf(value).bits);
      else if (type.kind == Brain16)
        push(toBFloat(value, Round::Nearest).bits);
      else
        push(type.kind == Single32 ? bitsOf(float(value)) : bitsOf(value));
    }
    return bytes;
  }
  for (const std::string &number : split(text, ','))
    push(readNumber(type, number));
  return bytes;
}

static Argument makeBuffer(Memory &memory, unsigned type,
                           const std::vector<uint8_t> &values) {
  Argument made;
  made.type = type;
  made.count = values.size() / types[type].bytes;
  made.address = memory.allocate(values.size());
  memory.write(made.address, values.data(), values.size());
  return made;
}

static Argument readMap(const std::vector<std::string> &parts, Memory &memory) {
  if (parts.size() != 6)
    sparse_opt::fail("expected map:TYPE:SIZES:BOX:SWIZZLE:VALUES, but got ",
                     parts.size(), " parts");
  unsigned type = findType(parts[1]);
  std::vector<std::string> sizes = split(parts[2], 'x'),
                           box = split(parts[3], 'x');
  if (sizes.size() != box.size() || sizes.size() > 5)
    sparse_opt::fail("expected sizes and a box of 1 to 5 dimensions, but got '",
                     parts[2], "' and '", parts[3], "'");
  Argument made = makeBuffer(memory, type, readValues(types[type], parts[5]));
  TensorMap map;
  map.address = made.address;
  map.dimensions = unsigned(sizes.size());
  map.elementBytes = types[type].bytes;
  uint64_t stride = map.elementBytes;
  for (unsigned i = 0; i < map.dimensions; ++i) {
    map.size[i] = readCount(sizes[i]);
    map.box[i] = uint32_t(readCount(box[i]));
    stride *= map.size[i];
    if (i + 1 < map.dimensions)
      map.stride[i] = stride;
  }
  static const char *const swizzles[] = {"0", "32", "64", "128"};
  bool known = false;
  for (unsigned i = 0; i < 4; ++i)
    if (parts[4] == swizzles[i])
      map.swizzle = Swizzle(i), known = true;
  if (!known)
    sparse_opt::fail("expected a swizzle of 0, 32, 64 or 128 bytes, but got '",
                     parts[4], "'");
  if (stride != made.count * map.elementBytes)
    sparse_opt::fail("expected ", stride / map.elementBytes,
                     " values of a tensor, but got ", made.count);
  EncodedTensorMap bytes = encode(map);
  made.bytes.assign(bytes.begin(), bytes.end());
  return made;
}

Argument ptx::readArgument(const std::string &text, Memory &memory) {
  std::vector<std::string> parts = split(text, ':');
  const std::string &kind = parts[0];
  if (kind == "map" || kind == "mapio") {
    Argument map = readMap(parts, memory);
    map.printed = kind == "mapio";
    return map;
  }
  bool in = kind == "in" || kind == "inout",
       out = kind == "out" || kind == "zero";
  if (parts.size() != (in || out ? 3u : 2u) || parts.back().empty())
    sparse_opt::fail(
        "expected TYPE:VALUE, in:TYPE:VALUES or out:TYPE:COUNT, but got '",
        text, "'");
  unsigned type = findType(parts[in || out]);
  const TypeEntry &entry = types[type];
  Argument made;
  uint64_t bits;
  if (in) {
    made = makeBuffer(memory, type, readValues(entry, parts[2]));
  } else if (out) {
    uint64_t count = readCount(parts[2]);
    if (kind == "zero") {
      made =
          makeBuffer(memory, type, std::vector<uint8_t>(count * entry.bytes));
    } else {
      made.type = type;
      made.count = count;
      made.address = memory.allocate(count * entry.bytes);
    }
  }
  made.printed = kind != "in" && (in || out);
  bits = in || out ? made.address : readNumber(entry, parts[1]);
  for (unsigned i = 0; i < (in || out ? 8 : entry.bytes); ++i)
    made.bytes.push_back(uint8_t(bits >> (8 * i)));
  return made;
}

static std::string printNumber(const TypeEntry &type, uint64_t bits) {
  char text[40];
  switch (type.kind) {
  case Unsigned:
    std::snprintf(text, sizeof(text), "%" PRIu64, bits);
    break;
  case Bits:
    std::snprintf(text, sizeof(text), "0x%0*" PRIx64, int(2 * type.bytes),
                  bits);
    break;
  case Signed: {
    unsigned unused = 64 - 8 * type.bytes;
    std::snprintf(text, sizeof(text), "%" PRId64,
                  int64_t(bits << unused) >> unused);
    break;
  }
  case Half16:
    std::snprintf(text, sizeof(text), "%g",
                  double(toFloat(Half{uint16_t(bits)})));
    break;
  case Brain16:
    std::snprintf(text, sizeof(text), "%g",
                  double(toFloat(BFloat{uint16_t(bits)})));
    break;
  case Single32:
    std::snprintf(text, sizeof(text), "%.9g", double(floatOf(uint32_t(bits))));
    break;
  case Double64:
    std::snprintf(text, sizeof(text), "%.17g", doubleOf(bits));
    break;
  }
  return text;
}

std::string ptx::printArgument(const Argument &argument, unsigned number,
                               const Memory &memory) {
  const TypeEntry &type = types[argument.type];
  std::vector<uint8_t> bytes(argument.count * type.bytes);
  memory.readAny(argument.address, bytes.data(), bytes.size());
  const Allocation *from = memory.find(argument.address);
  std::string text = "argument " + std::to_string(number) + ":";
  for (uint64_t i = 0; i < argument.count; ++i) {
    uint64_t bits = 0;
    bool known = true;
    for (unsigned j = 0; j < type.bytes; ++j) {
      bits |= uint64_t(bytes[i * type.bytes + j]) << (8 * j);
      known &= from->written[i * type.bytes + j];
    }
    text += i && i % 16 == 0 ? "\n " : " ";
    text += known ? printNumber(type, bits) : "?";
  }
  return text + "\n";
}

std::string ptx::printHash(const Argument &argument, unsigned number,
                           const Memory &memory) {
  uint64_t size = argument.count * types[argument.type].bytes;
  const Allocation *from = memory.find(argument.address);
  std::vector<uint8_t> piece(uint64_t(1) << 16);
  sparse_opt::Hasher hash;
  for (uint64_t begin = 0; begin < size; begin += piece.size()) {
    uint64_t count = std::min<uint64_t>(piece.size(), size - begin);
    memory.readAny(argument.address + begin, piece.data(), count);
    // 1 where a byte has a value; the others count as zeros.
    const uint8_t *written = &from->written[begin];
    uint8_t *bytes = piece.data();
    for (uint64_t i = 0; i < count; ++i)
      bytes[i] &= uint8_t(-written[i]);
    hash.add(bytes, count);
    hash.add(written, count);
  }
  char text[64];
  std::snprintf(text, sizeof(text), "argument %u: hash %016" PRIx64 "\n",
                number, hash.value());
  return text;
}

void ptx::writeArgument(const Argument &argument, unsigned number,
                        const Memory &memory, const std::string &folder) {
  std::vector<uint8_t> bytes(argument.count * types[argument.type].bytes);
  memory.readAny(argument.address, bytes.data(), bytes.size());
  const Allocation *from = memory.find(argument.address);
  for (size_t i = 0; i < bytes.size(); ++i)
    if (!from->written[i])
      sparse_opt::fail("expected argument ", number,
                       " to be written as a whole, but got nothing at byte ",
                       i);
  std::string name = folder + "/argument-" + std::to_string(number);
  std::ofstream file(name, std::ios::binary);
  file.write(reinterpret_cast<const char *>(bytes.data()),
             std::streamsize(bytes.size()));
  file.close();
  if (!file)
    sparse_opt::fail("expected to write file '", name, "', but got an error");
}

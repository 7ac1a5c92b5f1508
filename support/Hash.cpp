// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// XXH64, from its specification, and FNV-1a.

#include "Hash.h"
#include <algorithm>
#include <cstring>

using namespace bsr;

static constexpr uint64_t prime1 = 0x9e3779b185ebca87;
static constexpr uint64_t prime2 = 0xc2b2ae3d27d4eb4f;
static constexpr uint64_t prime3 = 0x165667b19e3779f9;
static constexpr uint64_t prime4 = 0x85ebca77c2b2ae63;
static constexpr uint64_t prime5 = 0x27d4eb2f165667c5;

static uint64_t rotate(uint64_t x, int by) {
  return (x << by) | (x >> (64 - by));
}

/// Reads `count` bytes, at most 8, as a little-endian number.
static uint64_t read(const unsigned char *data, int count) {
  uint64_t x = 0;
  for (int i = 0; i < count; ++i)
    x |= uint64_t(data[i]) << (8 * i);
  return x;
}

static uint64_t mix(uint64_t lane, uint64_t input) {
  return rotate(lane + input * prime2, 31) * prime1;
}

void XXH64::addStripe(const unsigned char *stripe) {
  for (int i = 0; i < 4; ++i)
    lanes[i] = mix(lanes[i], read(stripe + 8 * i, 8));
}

void XXH64::add(const void *data, size_t count) {
  const auto *bytes = static_cast<const unsigned char *>(data);
  size_t held = size % 32;
  size += count;
  if (held) {
    size_t part = std::min(count, 32 - held);
    std::memcpy(rest + held, bytes, part);
    bytes += part;
    count -= part;
    if (held + part < 32)
      return;
    addStripe(rest);
  }
  for (; count >= 32; bytes += 32, count -= 32)
    addStripe(bytes);
  if (count)
    std::memcpy(rest, bytes, count);
}

uint64_t XXH64::value() const {
  uint64_t hash = prime5;
  if (size >= 32) {
    hash = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) +
           rotate(lanes[3], 18);
    for (uint64_t lane : lanes)
      hash = (hash ^ mix(0, lane)) * prime1 + prime4;
  }
  hash += size;

  const unsigned char *tail = rest;
  size_t count = size % 32;
  for (; count >= 8; tail += 8, count -= 8)
    hash = rotate(hash ^ mix(0, read(tail, 8)), 27) * prime1 + prime4;
  for (; count >= 4; tail += 4, count -= 4)
    hash = rotate(hash ^ (read(tail, 4) * prime1), 23) * prime2 + prime3;
  for (; count; ++tail, --count)
    hash = rotate(hash ^ (*tail * prime5), 11) * prime1;

  hash = (hash ^ (hash >> 33)) * prime2;
  hash = (hash ^ (hash >> 29)) * prime3;
  return hash ^ (hash >> 32);
}

uint64_t bsr::xxh64(std::string_view text) {
  XXH64 hash;
  hash.add(text.data(), text.size());
  return hash.value();
}

uint64_t bsr::fnv1a(std::string_view bytes, uint64_t hash) {
  for (unsigned char byte : bytes)
    hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

std::string bsr::hexadecimal(uint64_t hash) {
  std::string digits(16, '0');
  for (int i = 15; i >= 0; --i, hash >>= 4)
    digits[i] = "0123456789abcdef"[hash & 15];
  return digits;
}

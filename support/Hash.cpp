// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// XXH64, by xxHash, and FNV-1a.

#include "Hash.h"

// Its code becomes part of this file: nothing of it is loaded or exported.
#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace bsr;

struct Hasher::State {
  XXH64_state_t value;
};

Hasher::Hasher() : state(std::make_unique<State>()) {
  XXH64_reset(&state->value, /*seed=*/0);
}

Hasher::~Hasher() = default;

void Hasher::add(const void *data, size_t size) {
  XXH64_update(&state->value, data, size);
}

uint64_t Hasher::value() const { return XXH64_digest(&state->value); }

uint64_t bsr::xxh64(std::string_view text) {
  return XXH64(text.data(), text.size(), /*seed=*/0);
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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// XXH64, by xxHash, and FNV-1a.

#include "Hash.h"
#include <new>

// Its code becomes part of this file: nothing of it is loaded or exported.
#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace sparse_opt;

Hasher::Hasher() {
  static_assert(sizeof(XXH64_state_t) <= sizeof state &&
                alignof(XXH64_state_t) <= 8);
  XXH64_reset(new (state) XXH64_state_t, /*seed=*/0);
}

void Hasher::add(const void *data, size_t size) {
  XXH64_update(reinterpret_cast<XXH64_state_t *>(state), data, size);
}

uint64_t Hasher::value() const {
  return XXH64_digest(reinterpret_cast<const XXH64_state_t *>(state));
}

uint64_t sparse_opt::xxh64(std::string_view text) {
  return XXH64(text.data(), text.size(), /*seed=*/0);
}

uint64_t sparse_opt::fnv1a(std::string_view bytes, uint64_t hash) {
  for (unsigned char byte : bytes)
    hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

std::string sparse_opt::hexadecimal(uint64_t hash) {
  std::string digits(16, '0');
  for (int i = 15; i >= 0; --i, hash >>= 4)
    digits[i] = "0123456789abcdef"[hash & 15];
  return digits;
}

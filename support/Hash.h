// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// XXH64, of names, manifests, checkpoints; FNV-1a, of token files and of what a
// step is compiled from: files hold both.

#ifndef BSR_SUPPORT_HASH_H
#define BSR_SUPPORT_HASH_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sparse_opt {

/// XXH64 with seed 0 of a sequence of bytes that arrives in pieces, by xxHash.
class Hasher {
public:
  Hasher();
  void add(const void *data, size_t size);
  uint64_t value() const;

private:
  /// xxHash's own state, in place: updates of patterns allocate nothing.
  alignas(8) unsigned char state[96];
};

/// XXH64 of `text`.
uint64_t xxh64(std::string_view text);

/// 64 bits of FNV-1a over `bytes`, going on from `hash` (Fowler, Noll, Vo).
uint64_t fnv1a(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325);

/// `hash` as 16 hexadecimal digits.
std::string hexadecimal(uint64_t hash);

} // namespace sparse_opt

#endif // BSR_SUPPORT_HASH_H

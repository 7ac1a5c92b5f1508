// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// XXH64, the one hash of the runtime: names, manifests and checkpoints.

#ifndef BSR_RUNTIME_HASH_H
#define BSR_RUNTIME_HASH_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bsr {

/// XXH64 with seed 0 of a sequence of bytes that arrives in pieces (Collet,
/// "xxHash fast digest algorithm", version 0.1.1).
class Hash {
public:
  void add(const void *data, size_t size);
  uint64_t value() const;

private:
  void addStripe(const unsigned char *stripe);

  uint64_t lanes[4] = {0x60ea27eeadc0b5d6, 0xc2b2ae3d27d4eb4f, 0,
                       0x61c8864e7a143579};
  unsigned char rest[32] = {};
  uint64_t size = 0;
};

/// The hash of `text`.
uint64_t hashOf(std::string_view text);

/// `hash` as 16 hexadecimal digits.
std::string hexadecimal(uint64_t hash);

} // namespace bsr

#endif // BSR_RUNTIME_HASH_H

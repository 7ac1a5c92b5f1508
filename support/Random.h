// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random numbers that depend on their key and nothing else.

#ifndef BSR_SUPPORT_RANDOM_H
#define BSR_SUPPORT_RANDOM_H

#include <array>
#include <cstdint>
#include <string_view>

namespace sparse_opt {

/// The upper 64 bits of the product of `a` and `b`.
inline uint64_t highProduct(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return uint64_t((Wide(a) * b) >> 64);
}

/// Philox 4x32-10 (Salmon et al., SC 2011).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                               std::array<uint32_t, 2> key);

/// The random numbers of one purpose, addressed by counter.
class RandomStream {
public:
  /// The purpose is the pair of what is made and the name it is made for.
  RandomStream(uint64_t seed, std::string_view what, std::string_view name);

  /// 64 random bits.
  uint64_t bits(uint64_t counter) const;

  /// A number in [0, bound), each equally likely to 2^-64 bound.
  uint64_t below(uint64_t bound, uint64_t counter) const;

  /// A standard normal number: `normalQuantile((2 u + 1) / 2^53)`, u the upper
  /// 52 bits of `bits`.
  double normal(uint64_t counter) const;

private:
  uint64_t seed;
  uint64_t purpose;
};

/// A sequence of random numbers that is a pure function of its key: SplitMix64
/// (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
/// The batches of a run are drawn with it.
class SplitMix64 {
public:
  SplitMix64(uint64_t seed, uint64_t stream, uint64_t counter)
      : state(mix(mix(mix(seed) ^ stream) ^ counter)) {}

  uint64_t next() { return mix(state += 0x9e3779b97f4a7c15); }

  /// An integer in [0, bound). Bounds up to 2^32 take the upper half of the
  /// bits, larger ones all.
  uint64_t below(uint64_t bound) {
    if (bound <= uint64_t(1) << 32)
      return (next() >> 32) * bound >> 32;
    return highProduct(next(), bound);
  }

private:
  static uint64_t mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  uint64_t state;
};

/// The normal quantile of `p` in (0, 1), to about 1e-16: Wichura, Algorithm
/// AS 241 (PPND16), Applied Statistics 37, 1988. Like `cosHalfPi` it uses only
/// operations that IEEE 754 rounds correctly, so it is the same everywhere.
double normalQuantile(double p);

/// cos(pi t / 2) for `t` in [0, 1]: 1 at 0, and in [0, 1] everywhere.
double cosHalfPi(double t);

} // namespace sparse_opt

#endif // BSR_SUPPORT_RANDOM_H

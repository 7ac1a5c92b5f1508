// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Floating-point formats, and results that are rounded once.

#ifndef PTX_ROUNDING_H
#define PTX_ROUNDING_H

#include <cmath>
#include <cstdint>
#include <cstring>

namespace ptx {

enum class Round : uint8_t { Nearest, Zero, Down, Up, NearestAway };

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

inline float floatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline double doubleOf(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, 8);
  return value;
}
inline uint64_t bitsOf(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, 8);
  return bits;
}

constexpr uint32_t canonicalNaN = 0x7fffffff;

/// A binary format of at most 32 bits.
struct Format {
  int exponentBits, fractionBits;
};
constexpr Format halfFormat{5, 10}, bfloatFormat{8, 7}, singleFormat{8, 23},
    tf32Format{8, 10};

/// `value` in the format, rounded once; NaN is all ones but the sign.
uint32_t roundTo(Format format, double value, Round mode);

/// `value` with its last bit set where `error`, what is missing, is not zero: a
/// rounding to at most 51 bits then is that of the exact sum.
inline double toOdd(double value, double error) {
  if (!(std::fabs(error) > 0) || !std::isfinite(value))
    return value;
  uint64_t bits = bitsOf(value);
  if (bits & 1)
    return value;
  bool away = value == 0 || (error > 0) == (value > 0);
  return doubleOf(away ? bits | 1 : bits - 1);
}

/// a + b, rounded to odd.
inline double addOdd(double a, double b) {
  double sum = a + b, part = sum - a;
  return toOdd(sum, (a - (sum - part)) + (b - part));
}

inline float toFloat(BFloat value) {
  return floatOf(uint32_t(value.bits) << 16);
}
float toFloat(Half value);

inline BFloat toBFloat(float value) {
  uint32_t bits = bitsOf(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return {0x7fff};
  return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline Half toHalf(double value, Round mode = Round::Nearest) {
  return {uint16_t(roundTo(halfFormat, value, mode))};
}
inline BFloat toBFloat(double value, Round mode) {
  return {uint16_t(roundTo(bfloatFormat, value, mode))};
}
inline float toSingle(double value, Round mode) {
  if (std::isnan(value))
    return floatOf(canonicalNaN);
  return mode == Round::Nearest ? float(value)
                                : floatOf(roundTo(singleFormat, value, mode));
}

inline float flush(float value) {
  return (bitsOf(value) & 0x7f800000) ? value
                                      : floatOf(bitsOf(value) & 0x80000000u);
}

} // namespace ptx

#endif // PTX_ROUNDING_H

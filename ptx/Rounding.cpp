// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Rounding.h"

using namespace ptx;

uint32_t ptx::roundTo(Format format, double value, Round mode) {
  const int fraction = format.fractionBits, exponents = format.exponentBits;
  const uint32_t infinity = ((1u << exponents) - 1) << fraction;
  uint64_t bits = bitsOf(value);
  bool negative = bits >> 63;
  uint32_t sign = uint32_t(negative) << (exponents + fraction);
  if (std::isnan(value))
    return infinity | ((1u << fraction) - 1);
  if (std::isinf(value))
    return sign | infinity;
  if (value == 0)
    return sign;
  const int bias = (1 << (exponents - 1)) - 1;
  int exponent = int(bits >> 52 & 0x7ff);
  uint64_t significand = bits & ((uint64_t(1) << 52) - 1);
  if (exponent)
    significand |= uint64_t(1) << 52;
  else
    exponent = 1;
  exponent -= 1023; // value = significand * 2^(exponent - 52)
  while (!(significand >> 52)) {
    significand <<= 1;
    --exponent;
  }
  // Bits to drop: more where the result is subnormal.
  int drop = 52 - fraction;
  int lowest = 1 - bias;
  bool subnormal = exponent < lowest;
  if (subnormal)
    drop += lowest - exponent;
  uint64_t kept = drop > 63 ? 0 : significand >> drop;
  uint64_t rest =
      drop > 63 ? significand : significand & ((uint64_t(1) << drop) - 1);
  bool up = false;
  uint64_t half = drop > 63 ? ~uint64_t(0) : uint64_t(1) << (drop - 1);
  switch (mode) {
  case Round::Nearest:
    up = rest > half || (rest == half && (kept & 1));
    break;
  case Round::NearestAway:
    up = rest >= half;
    break;
  case Round::Zero:
    break;
  case Round::Down:
    up = negative && rest;
    break;
  case Round::Up:
    up = !negative && rest;
    break;
  }
  kept += up;
  uint32_t result =
      subnormal ? uint32_t(kept)
                : uint32_t(kept + (uint64_t(exponent + bias - 1) << fraction));
  if (exponent > bias || result >= infinity) {
    bool away = mode == Round::Nearest || mode == Round::NearestAway ||
                mode == (negative ? Round::Down : Round::Up);
    result = away ? infinity : infinity - 1;
  }
  return sign | result;
}

float ptx::toFloat(Half value) {
  uint32_t sign = uint32_t(value.bits & 0x8000) << 16;
  uint32_t exponent = value.bits >> 10 & 31, fraction = value.bits & 0x3ff;
  if (exponent == 31)
    return floatOf(sign | 0x7f800000 | fraction << 13);
  if (exponent)
    return floatOf(sign | (exponent + 112) << 23 | fraction << 13);
  float small = float(fraction) * 0x1p-24f;
  return floatOf(sign | bitsOf(small));
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elements of 16 bits, and what they are as f64.

#ifndef BSR_SUPPORT_ELEMENT_H
#define BSR_SUPPORT_ELEMENT_H

#include <cstdint>

namespace sparse_opt {

/// Storage of an f16 and of a bf16.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

/// The bits of `from` as another type of the same size.
template <typename To, typename From>
To bitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

inline double toDouble(double value) { return value; }
inline double toDouble(float value) { return value; }

inline double toDouble(BFloat value) {
  return bitCast<float>(uint32_t(value.bits) << 16);
}

inline double toDouble(Half value) {
#ifdef __NVPTX__
  return bitCast<_Float16>(value.bits); // an instruction does the same
#else
  int exponent = (value.bits >> 10) & 31;
  uint32_t fraction = value.bits & 1023;
  uint32_t bits = uint32_t(exponent == 31 ? 255 : exponent + 112) << 23 |
                  fraction << 13 | uint32_t(value.bits >> 15) << 31;
  auto result = bitCast<float>(bits);
  if (exponent == 0) // subnormal, or zero
    result = (value.bits >> 15 ? -0x1p-24f : 0x1p-24f) * float(fraction);
  return result;
#endif
}

} // namespace sparse_opt

#endif // BSR_SUPPORT_ELEMENT_H

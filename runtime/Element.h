// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element types of buffers, and their conversion from and to f64.

#ifndef BSR_RUNTIME_ELEMENT_H
#define BSR_RUNTIME_ELEMENT_H

#include "bsr/runtime.h"
#include "support/ElementType.h"
#include <cstring>

namespace bsr {

/// Storage of an f16 and of a bf16.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

/// The type in files, and back.
inline ElementType elementType(bsr_type type) { return ElementType(type); }
static_assert(BSR_F16 == int(ElementType::F16) &&
                  BSR_I1 == int(ElementType::I1) &&
                  BSR_UI64 == int(ElementType::UI64),
              "the C interface numbers types as files do");

inline double toDouble(double value) { return value; }
inline double toDouble(float value) { return value; }

inline double toDouble(BFloat value) {
  uint32_t bits = uint32_t(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

inline double toDouble(Half value) {
  int exponent = (value.bits >> 10) & 31;
  uint32_t fraction = value.bits & 1023;
  uint32_t bits = uint32_t(exponent == 31 ? 255 : exponent + 112) << 23 |
                  fraction << 13 | uint32_t(value.bits >> 15) << 31;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  if (exponent == 0) // subnormal, or zero
    result = (value.bits >> 15 ? -0x1p-24f : 0x1p-24f) * float(fraction);
  return result;
}

/// Writes `value`, rounded to the nearest `type`, as element `index` of `data`.
void storeElement(bsr_type type, void *data, int64_t index, double value);

} // namespace bsr

#endif // BSR_RUNTIME_ELEMENT_H

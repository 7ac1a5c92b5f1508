// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names, sizes and conversions of the element types.

#include "Element.h"
#include <algorithm>
#include <cmath>

using namespace sparse_opt;

// Callers in C may pass any number as a type: C++ has a rule against that.
[[gnu::no_sanitize("enum")]] const char *bsr_type_name(bsr_type type) {
  return unsigned(type) < numElementTypes ? elementTypes[type].name : "";
}

[[gnu::no_sanitize("enum")]] int64_t bsr_type_bytes(bsr_type type) {
  return unsigned(type) < numElementTypes ? elementTypes[type].bytes : 0;
}

/// Rounds `value` to a 16-bit format with `fractionBits` bits of
/// fraction and exponents from `least` to `most`, to nearest even; what is too
/// large becomes infinity.
static uint16_t round(double value, int fractionBits, int least, int most) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  int64_t infinity = int64_t(most - least + 2) << fractionBits;
  if (!std::isfinite(value))
    return sign | uint16_t(infinity) |
           (std::isnan(value) ? 1 << (fractionBits - 1) : 0);
  int exponent = value == 0 ? least : std::max(std::ilogb(value), least);
  // The value in units of the last place; rounding may carry into the exponent.
  double units =
      std::nearbyint(std::ldexp(std::fabs(value), fractionBits - exponent));
  int64_t bits = int64_t(units) + (int64_t(exponent - least) << fractionBits);
  return sign | uint16_t(std::min(bits, infinity));
}

double sparse_opt::loadElement(bsr_type type, const void *data, int64_t index) {
  switch (type) {
  case BSR_F16:
    return toDouble(static_cast<const Half *>(data)[index]);
  case BSR_BF16:
    return toDouble(static_cast<const BFloat *>(data)[index]);
  case BSR_F64:
    return static_cast<const double *>(data)[index];
  default:
    return static_cast<const float *>(data)[index];
  }
}

void sparse_opt::storeElement(bsr_type type, void *data, int64_t index,
                              double value) {
  switch (type) {
  case BSR_F16:
    static_cast<uint16_t *>(data)[index] = round(value, 10, -14, 15);
    return;
  case BSR_BF16:
    static_cast<uint16_t *>(data)[index] = round(value, 7, -126, 127);
    return;
  case BSR_F32:
    static_cast<float *>(data)[index] = float(value);
    return;
  case BSR_F64:
    static_cast<double *>(data)[index] = value;
    return;
  case BSR_I1:
  case BSR_I8:
    static_cast<int8_t *>(data)[index] = int8_t(value);
    return;
  case BSR_I32:
    static_cast<int32_t *>(data)[index] = int32_t(value);
    return;
  case BSR_I64:
    static_cast<int64_t *>(data)[index] = int64_t(value);
    return;
  case BSR_UI8:
    static_cast<uint8_t *>(data)[index] = uint8_t(value);
    return;
  case BSR_UI32:
    static_cast<uint32_t *>(data)[index] = uint32_t(value);
    return;
  case BSR_UI64:
    static_cast<uint64_t *>(data)[index] = uint64_t(value);
    return;
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What `mma` and `wgmma` compute, wherever their operands come from.

#ifndef PTX_PRODUCTS_H
#define PTX_PRODUCTS_H

#include "Rounding.h"

namespace ptx {

/// The type of an operand's elements.
enum class Element : uint8_t { BFloat, Half, TF32 };

/// The value of an element, whose bits are the lowest ones.
inline float widen(Element element, uint32_t bits) {
  switch (element) {
  case Element::BFloat:
    return toFloat(BFloat{uint16_t(bits)});
  case Element::Half:
    return toFloat(Half{uint16_t(bits)});
  case Element::TF32:
    return floatOf(bits & 0xffffe000u); // the lower bits are ignored
  }
  return 0;
}

/// The bits of a sum in f32.
inline uint32_t roundedSum(double sum) {
  float value = float(sum);
  return value == value ? bitsOf(value) : canonicalNaN;
}

/// sums[16][columns] += a[16][depth] b[depth][columns], of exact products that
/// are added in f64 in the order of k. `columns` is a multiple of 8.
void addProducts(unsigned columns, unsigned depth, const double *a,
                 const double *b, double *sums);

} // namespace ptx

#endif // PTX_PRODUCTS_H

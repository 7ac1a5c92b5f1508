// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Most of the time of kernels with products is spent here: the processor's
// widest vectors do it. Each column is a lane, so that all of them give the
// same bits.

#include "Products.h"

using namespace ptx;

/// `rows` rows at a time, whose sums stay in registers.
template <unsigned rows>
static inline __attribute__((always_inline)) void
add(unsigned columns, unsigned depth, const double *a, const double *b,
    double *sums) {
  constexpr unsigned width = 8;
  for (unsigned row = 0; row < 16; row += rows)
    for (unsigned col = 0; col < columns; col += width) {
      double tile[rows][width];
      for (unsigned r = 0; r < rows; ++r)
        for (unsigned c = 0; c < width; ++c)
          tile[r][c] = sums[(row + r) * columns + col + c];
      for (unsigned k = 0; k < depth; ++k)
        for (unsigned r = 0; r < rows; ++r)
          for (unsigned c = 0; c < width; ++c)
            tile[r][c] += a[(row + r) * depth + k] * b[k * columns + col + c];
      for (unsigned r = 0; r < rows; ++r)
        for (unsigned c = 0; c < width; ++c)
          sums[(row + r) * columns + col + c] = tile[r][c];
    }
}

#ifdef __x86_64__
__attribute__((target("avx512f"))) static void
addWith512(unsigned columns, unsigned depth, const double *a, const double *b,
           double *sums) {
  add<8>(columns, depth, a, b, sums);
}

__attribute__((target("avx2"))) static void
addWith256(unsigned columns, unsigned depth, const double *a, const double *b,
           double *sums) {
  add<4>(columns, depth, a, b, sums);
}
#endif

void ptx::addProducts(unsigned columns, unsigned depth, const double *a,
                      const double *b, double *sums) {
#ifdef __x86_64__
  static const bool has512 = __builtin_cpu_supports("avx512f"),
                    has256 = __builtin_cpu_supports("avx2");
  if (has512)
    return addWith512(columns, depth, a, b, sums);
  if (has256)
    return addWith256(columns, depth, a, b, sums);
#endif
  add<2>(columns, depth, a, b, sums);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Norms of blocks, of every element type, summed in a fixed order.

#include "BlockNorm.h"
#include "base/Element.h"
#include "base/Status.h"
#include "support/PatternKernels.h"
#include "support/UpdateSteps.h"
#include <cmath>
#include <omp.h>

using namespace sparse_opt;

namespace {
/// The partial sums of the norm of a block.
template <typename T>
class AllParts {
public:
  explicit AllParts(const T *block) : block(block) {}

  struct Sums {
    double of[normParts];
  };
  template <typename Add>
  Sums add(int64_t size, Add add) const {
    Sums sums = {};
    int64_t i = 0;
    for (; i + normParts <= size; i += normParts)
      for (unsigned part = 0; part < normParts; ++part)
        sums.of[part] = add(sums.of[part], block[i + part]);
    for (unsigned part = 0; i < size; ++i, ++part)
      sums.of[part] = add(sums.of[part], block[i]);
    return sums;
  }
  template <typename Add>
  static void fold(Sums &sums, unsigned distance, Add add) {
    for (unsigned part = 0; part < normParts; part += 2 * distance)
      sums.of[part] = add(sums.of[part], sums.of[part + distance]);
  }
  static double first(const Sums &sums) { return sums.of[0]; }
  T only() const { return *block; }

private:
  const T *block;
};
} // namespace

/// Calls `body(norm, element)` with objects of the classes of both.
template <typename Body>
static void dispatch(bsr_norm norm, bsr_type type, Body body) {
  auto withNorm = [&](auto element) {
    switch (norm) {
    case BSR_L2:
      return body(SumOfSquares(), element);
    case BSR_LINF:
      return body(Largest(), element);
    default:
      return body(Sum(), element);
    }
  };
  switch (type) {
  case BSR_F16:
    return withNorm(Half());
  case BSR_BF16:
    return withNorm(BFloat());
  case BSR_F64:
    return withNorm(double());
  default:
    return withNorm(float());
  }
}

std::string sparse_opt::nameOfNorms(bsr_norm norm, bsr_type type) {
  const char *name = norm == BSR_L2     ? "squares"
                     : norm == BSR_LINF ? "largest"
                                        : "sum"; // the mean is one, too
  return normKernel(name, ElementType(type));
}

[[noreturn]] static void refuseNaN(const Pattern &pattern, int64_t r,
                                   int64_t c) {
  fail(BSR_NOT_A_NUMBER, "expected numbers in block (", r, ", ", c, ") of '",
       pattern.name, "', but got NaN");
}

void sparse_opt::refuseNaN(const Pattern &pattern,
                           const PatternIndices &indices, int64_t k) {
  const int32_t *first = indices.rowPtr;
  const int32_t *end = first + pattern.gridRows() + 1;
  int64_t r = std::upper_bound(first, end, k) - first - 1;
  ::refuseNaN(pattern, r, indices.colIdx[k]);
}

void sparse_opt::refuseNaNScore(const Pattern &pattern, int64_t block) {
  fail(BSR_NOT_A_NUMBER, "expected a number as the score of block (",
       block / pattern.gridCols(), ", ", block % pattern.gridCols(), ") of '",
       pattern.name, "', but got NaN");
}

void sparse_opt::checkNorm(const Pattern &pattern, int32_t norm) {
  if (norm < 0 || norm > BSR_MEAN)
    fail(BSR_INVALID_ARGUMENT, "expected a norm from 0 to ", int(BSR_MEAN),
         ", but got ", norm, " for pattern '", pattern.name, "'");
}

void sparse_opt::blockNorms(bsr_norm norm, bsr_type type, const void *values,
                            const int32_t *slots, int64_t size, int64_t blocks,
                            double *norms) {
  dispatch(norm, type, [&](auto kind, auto element) {
    auto *elements = static_cast<const decltype(element) *>(values);
    // Threads pay from a millisecond on. Patterns that are updated side by side
    // have one each already.
    bool sharesWork = blocks * size >= 1 << 15 && !omp_in_parallel();
#pragma omp parallel for if (sharesWork)
    for (int64_t k = 0; k < blocks; ++k)
      norms[k] = normOf<decltype(kind)>(
          AllParts<decltype(element)>(elements + slots[k] * size), size);
  });
}

void sparse_opt::checkNorms(const Pattern &pattern,
                            const PatternIndices &indices,
                            const double *norms) {
  for (int32_t k = 0; k < indices.rowPtr[pattern.gridRows()]; ++k)
    if (std::isnan(norms[k]))
      refuseNaN(pattern, indices, k);
}

void sparse_opt::computeDenseNorms(const Pattern &pattern, bsr_norm norm,
                                   bsr_type type, const void *dense,
                                   double *norms) {
  dispatch(norm, type, [&](auto kind, auto element) {
    std::vector<decltype(element)> block(
        size_t(pattern.blockRows * pattern.blockCols));
    for (int64_t r = 0; r < pattern.gridRows(); ++r) {
      for (int64_t c = 0; c < pattern.gridCols(); ++c) {
        forEachRowOfBlock(pattern, r, c, dense, sizeof element,
                          [&](int64_t row, const char *data, int64_t bytes) {
                            std::memcpy(&block[row * pattern.blockCols], data,
                                        size_t(bytes));
                          });
        double &result = norms[r * pattern.gridCols() + c];
        result = normOf<decltype(kind)>(
            AllParts<decltype(element)>(block.data()), int64_t(block.size()));
        if (std::isnan(result))
          ::refuseNaN(pattern, r, c);
      }
    }
  });
}

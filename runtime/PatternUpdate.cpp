// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prunes the blocks of the lowest norm and regrows random ones in their slots.

#include "Element.h"
#include "Error.h"
#include "Pattern.h"
#include <cmath>
#include <cstring>

using namespace bsr;

/// The bits of number `rank` (from 0) of `norms` in rising order; `below` is
/// how many are lower. Radix selection on the bits, which order non-negative
/// numbers as their values do.
static uint64_t selectNorm(const double *norms, int64_t size, int64_t rank,
                           int64_t &below) {
  uint64_t prefix = 0, mask = 0;
  below = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    int64_t counts[256] = {};
    for (int64_t k = 0; k < size; ++k) {
      uint64_t bits;
      std::memcpy(&bits, norms + k, sizeof bits);
      if ((bits & mask) == prefix)
        ++counts[bits >> shift & 255];
    }
    uint64_t digit = 0;
    for (; below + counts[digit] <= rank; ++digit)
      below += counts[digit];
    prefix |= digit << shift;
    mask |= uint64_t(255) << shift;
  }
  return prefix;
}

/// Takes the `count` blocks of the lowest norm, of equal ones the first, out of
/// `stored` and `slots`, and writes their slots to `freed`.
static void prune(const double *norms, int64_t blocks, int64_t count,
                  int64_t *stored, int32_t *slots, int32_t *freed) {
  int64_t below;
  uint64_t bits = selectNorm(norms, blocks, count - 1, below);
  double threshold;
  std::memcpy(&threshold, &bits, sizeof threshold);

  int64_t ties = count - below;
  int64_t kept = 0;
  for (int64_t k = 0; k < blocks; ++k) {
    if (norms[k] < threshold || (norms[k] == threshold && ties-- > 0)) {
      *freed++ = slots[k];
      continue;
    }
    stored[kept] = stored[k];
    slots[kept++] = slots[k];
  }
}

/// Merges `regrown` blocks in `freed` slots into the `kept` blocks, from the
/// back, so that no block is overwritten before it has moved.
static void merge(int64_t kept, int64_t count, const int64_t *regrown,
                  const int32_t *freed, int64_t *stored, int32_t *slots) {
  for (int64_t place = kept + count - 1; count; --place) {
    bool takesKept = kept && stored[kept - 1] > regrown[count - 1];
    int64_t from = takesKept ? --kept : --count;
    stored[place] = takesKept ? stored[from] : regrown[from];
    slots[place] = takesKept ? slots[from] : freed[from];
  }
}

int64_t bsr::updatePattern(const Pattern &pattern, double drop, uint64_t seed,
                           int64_t update, const PatternIndices &indices,
                           PatternScratch &scratch) {
  int64_t rows = pattern.gridRows(), cols = pattern.gridCols();
  int64_t blocks = indices.rowPtr[rows];
  int64_t count = std::min(int64_t(drop * double(blocks) + 0.5),
                           pattern.allBlocks() - blocks);
  if (count == 0)
    return 0;

  for (int64_t r = 0; r < rows; ++r)
    for (int32_t k = indices.rowPtr[r]; k < indices.rowPtr[r + 1]; ++k)
      scratch.stored[k] = r * cols + indices.colIdx[k];
  chooseAbsent(pattern, scratch.stored, blocks, count,
               RandomStream(seed, "pattern", pattern.name), update,
               scratch.marks, scratch.regrown);
  prune(scratch.norms, blocks, count, scratch.stored, indices.slot,
        scratch.freed);
  merge(blocks - count, count, scratch.regrown, scratch.freed, scratch.stored,
        indices.slot);
  buildViews(pattern, scratch.stored, blocks, indices);
  return count;
}

/// Sum of |x|: element i goes to partial sum i mod 8, so that the order is
/// fixed and yet leaves room for vectors.
template <typename T>
static double norm(const T *block, int64_t size) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= size; i += 8)
    for (int lane = 0; lane < 8; ++lane)
      sums[lane] += std::fabs(toDouble(block[i + lane]));
  for (int lane = 0; i < size; ++i, ++lane)
    sums[lane] += std::fabs(toDouble(block[i]));
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
         ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

template <typename T>
static void computeNorms(const Pattern &pattern, const void *weight,
                         const PatternIndices &indices, double *norms) {
  int64_t size = pattern.blockRows * pattern.blockCols;
  for (int64_t r = 0; r < pattern.gridRows(); ++r) {
    for (int32_t k = indices.rowPtr[r]; k < indices.rowPtr[r + 1]; ++k) {
      norms[k] =
          norm(static_cast<const T *>(weight) + indices.slot[k] * size, size);
      if (std::isnan(norms[k]))
        fail(BSR_NOT_A_NUMBER, "expected numbers in block (", r, ", ",
             indices.colIdx[k], ") of '", pattern.name, "', but got NaN");
    }
  }
}

void bsr::computeNorms(const Pattern &pattern, bsr_type type,
                       const void *weight, const PatternIndices &indices,
                       PatternScratch &scratch) {
  switch (type) {
  case BSR_F16:
    return ::computeNorms<Half>(pattern, weight, indices, scratch.norms);
  case BSR_BF16:
    return ::computeNorms<BFloat>(pattern, weight, indices, scratch.norms);
  case BSR_F64:
    return ::computeNorms<double>(pattern, weight, indices, scratch.norms);
  default:
    return ::computeNorms<float>(pattern, weight, indices, scratch.norms);
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What blocks are ranked by.

#ifndef BSR_RUNTIME_PATTERN_BLOCKNORM_H
#define BSR_RUNTIME_PATTERN_BLOCKNORM_H

#include "Pattern.h"
#include <cstring>

namespace sparse_opt {

/// The number that a caller gave for an enumerator, which may be none.
template <typename Enum>
int32_t numberOf(const Enum &given) {
  int32_t number;
  static_assert(sizeof given == sizeof number);
  std::memcpy(&number, &given, sizeof number);
  return number;
}

/// Fails unless `norm`, the number of one for blocks of `pattern`, is one.
void checkNorm(const Pattern &pattern, int32_t norm);

/// Writes to `norms` for each of `blocks` blocks a number that orders as its
/// norm: block k is the `size` elements in slot `slots[k]` of `values`. The sum
/// of squares stands for L2, and L1 for the mean: all blocks of a matrix are of
/// one size.
void blockNorms(bsr_norm norm, bsr_type type, const void *values,
                const int32_t *slots, int64_t size, int64_t blocks,
                double *norms);

/// The kernel that computes them on a GPU.
std::string nameOfNorms(bsr_norm norm, bsr_type type);

/// Fails, as of a NaN in stored block `k`, counted in row order.
[[noreturn]] void refuseNaN(const Pattern &pattern,
                            const PatternIndices &indices, int64_t k);

/// Whether there is a NaN among `size` numbers at `data`.
bool hasNaN(const float *data, int64_t size);

/// Fails, as of a NaN that is the score of `block`.
[[noreturn]] void refuseNaNScore(const Pattern &pattern, int64_t block);

/// Fails if one of `norms`, of the stored blocks in row order, is NaN.
void checkNorms(const Pattern &pattern, const PatternIndices &indices,
                const double *norms);

/// Writes to `norms` the same for every block of the matrix `dense`, which is
/// row-major; fails if one is NaN.
void computeDenseNorms(const Pattern &pattern, bsr_norm norm, bsr_type type,
                       const void *dense, double *norms);

/// Calls `visit(row, data, bytes)` for each row of block (`r`, `c`) of the
/// row-major matrix `dense` of elements of `elementBytes`.
template <typename Visit>
void forEachRowOfBlock(const Pattern &pattern, int64_t r, int64_t c,
                       const void *dense, int64_t elementBytes, Visit visit) {
  const char *data = static_cast<const char *>(dense);
  for (int64_t i = 0; i < pattern.blockRows; ++i)
    visit(i,
          data + elementBytes * ((r * pattern.blockRows + i) * pattern.cols +
                                 c * pattern.blockCols),
          elementBytes * pattern.blockCols);
}

} // namespace sparse_opt

#endif // BSR_RUNTIME_PATTERN_BLOCKNORM_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How extents are cut in tiles and vectors.

#ifndef BSR_CODEGEN_CPU_TILING_H
#define BSR_CODEGEN_CPU_TILING_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/SmallVector.h"

namespace mlir::bsr::cpu {

/// Work items of a product, at least: each of 64 threads has its share. One
/// thread took as long with 128 as well, but a step gained no more.
constexpr int64_t minItems = 64;

/// Those of a dense product, which packs what its work items share: with more
/// of them it packs more.
constexpr int64_t minDenseItems = 32;

/// The largest of `limit` and below that divides `extent`.
int64_t getDivisor(int64_t extent, int64_t limit);

/// Consecutive tiles of `size` points from `base` on.
struct Tiles {
  int64_t base, size, count;
};
/// Covers `extent` with tiles of `size` and a smaller one for what is left.
SmallVector<Tiles, 2> tileWithRemainder(int64_t extent, int64_t size);
/// Covers `extent` lanes with vectors of `width`, a power of two, and what is
/// left with vectors of the powers of two below.
SmallVector<Tiles, 4> getVectors(int64_t extent, int64_t width);
/// Covers `extent` with as few tiles of at most `limit` as possible, their
/// sizes no more than one apart.
SmallVector<Tiles, 2> tileEvenly(int64_t extent, int64_t limit);

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_TILING_H

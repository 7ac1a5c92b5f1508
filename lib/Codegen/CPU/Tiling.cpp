// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How extents are cut in tiles and vectors.

#include "bsr/Codegen/CPU/Tiling.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

SmallVector<Tiles, 2> cpu::tileWithRemainder(int64_t extent, int64_t size) {
  SmallVector<Tiles, 2> result;
  if (extent / size)
    result.push_back({0, size, extent / size});
  if (int64_t rest = extent % size)
    result.push_back({extent - rest, rest, 1});
  return result;
}

SmallVector<Tiles, 4> cpu::getVectors(int64_t extent, int64_t width) {
  SmallVector<Tiles, 4> result;
  for (int64_t size = width, done = 0; size; size /= 2) {
    int64_t count = (extent - done) / size;
    if (count)
      result.push_back({done, size, count});
    done += count * size;
  }
  return result;
}

SmallVector<Tiles, 2> cpu::tileEvenly(int64_t extent, int64_t limit) {
  int64_t count = llvm::divideCeil(extent, limit);
  int64_t size = extent / count, larger = extent % count;
  SmallVector<Tiles, 2> result;
  if (larger)
    result.push_back({0, size + 1, larger});
  result.push_back({larger * (size + 1), size, count - larger});
  return result;
}

int64_t cpu::getDivisor(int64_t extent, int64_t limit) {
  limit = std::min(limit, extent);
  while (extent % limit)
    --limit;
  return limit;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// First patterns: of the largest blocks of dense weights.

#include "Session.h"
#include "base/Status.h"
#include "pattern/BlockNorm.h"
#include "pattern/OneThread.h"
#include <cstring>

using namespace sparse_opt;

void bsr_session::takeLargest(int64_t index, int64_t blocks, bsr_norm norm,
                              bsr_type type, const void *dense) {
  const Pattern &pattern = manifest().patterns[index];
  requireBlocks(pattern, blocks);
  bsr_type own = manifest().buffers[pattern.weight].type;
  if (type != own)
    fail(BSR_INVALID_ARGUMENT, "expected dense weights of type ",
         bsr_type_name(own), " for '", pattern.name, "', but got ",
         bsr_type_name(type));

  std::vector<double> norms(size_t(pattern.allBlocks()));
  computeDenseNorms(pattern, norm, type, dense, norms.data());
  auto keyAt = [&](int64_t block) { return ~keyOf(norms[block]); };
  takeLowest(pattern.allBlocks(), blocks, keyAt, scratch.kept);
  for (int64_t k = 0; k < blocks; ++k)
    indices(index).slot[k] = int32_t(k);
  buildViews(pattern, scratch.kept, blocks, indices(index));

  for (int32_t values : pattern.values)
    device.zero(buffers[values], manifest().buffers[values].bytes);
  fillSlots(index, indices(index).slot, blocks, /*isNew=*/true);
  int64_t elementBytes = bsr_type_bytes(type);
  fillBuffer(pattern.weight, [&](char *values) {
    for (int64_t k = 0; k < blocks; ++k)
      forEachRowOfBlock(pattern, scratch.kept[k] / pattern.gridCols(),
                        scratch.kept[k] % pattern.gridCols(), dense,
                        elementBytes,
                        [&](int64_t, const char *data, int64_t bytes) {
                          std::memcpy(values, data, size_t(bytes));
                          values += bytes;
                        });
  });
  patternMade(index);
}

bsr_status bsr_session_take_largest(bsr_session *session, int64_t pattern,
                                    int64_t blocks, bsr_norm norm,
                                    bsr_type type, const void *dense) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(dense, "dense");
    session->requireDynamic(pattern);
    checkNorm(session->manifest().patterns[pattern], numberOf(norm));
    session->takeLargest(pattern, blocks, norm, type, dense);
  });
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// First patterns of the largest blocks of dense weights, and first values for
// the fan-in that a pattern stores.

#include "Session.h"
#include "base/Element.h"
#include "base/Status.h"
#include "pattern/BlockNorm.h"
#include "pattern/OneThread.h"
#include <cmath>
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

void bsr_session::scaleFanIn(int64_t index, bsr_fan_in fanIn) {
  const Pattern &pattern = manifest().patterns[index];
  int32_t number = numberOf(fanIn);
  if (number < 0 || number > BSR_FAN_IN_COLUMNS)
    fail(BSR_INVALID_ARGUMENT, "expected a fan-in from 0 to ",
         int(BSR_FAN_IN_COLUMNS), ", but got ", number, " for pattern '",
         pattern.name, "'");
  if (fanIn == BSR_FAN_IN_DENSE)
    return;
  bool byRows = fanIn == BSR_FAN_IN_ROWS;
  bsr_pattern_view own = view(index);
  const int32_t *ends = byRows ? own.row_ptr : own.col_ptr;
  const int32_t *slots = byRows ? own.slot : own.slot_t;
  int64_t lines = byRows ? pattern.gridRows() : pattern.gridCols();
  double dense = double(byRows ? pattern.gridCols() : pattern.gridRows());
  int64_t size = pattern.blockRows * pattern.blockCols;
  bsr_type type = manifest().buffers[pattern.weight].type;
  std::vector<char> copy;
  const void *before = readBuffer(pattern.weight, copy);
  fillBuffer(pattern.weight, [&](char *values) {
    if (values != before)
      std::memcpy(values, before, copy.size());
    for (int64_t line = 0; line < lines; ++line) {
      double factor = std::sqrt(dense / double(ends[line + 1] - ends[line]));
      for (int32_t k = ends[line]; k < ends[line + 1]; ++k)
        for (int64_t i = slots[k] * size; i < (slots[k] + 1) * size; ++i)
          storeElement(type, values, i, factor * loadElement(type, values, i));
    }
  });
}

bsr_status bsr_session_scale_fan_in(bsr_session *session, int64_t pattern,
                                    bsr_fan_in fan_in) {
  return guarded([&] {
    requireArgument(session, "session");
    session->requireDynamic(pattern);
    session->scaleFanIn(pattern, fan_in);
  });
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

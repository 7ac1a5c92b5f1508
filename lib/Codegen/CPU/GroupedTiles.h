// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which sampled products sum inner products with grouped strips, and by which
// tiles.

#ifndef BSR_LIB_CODEGEN_CPU_GROUPEDTILES_H
#define BSR_LIB_CODEGEN_CPU_GROUPEDTILES_H

#include "bsr/Codegen/CPU/CPUTarget.h"
#include "bsr/Codegen/CPU/Tiling.h"

namespace mlir::bsr::cpu {

/// Tiles of sums on grouped strips (`InnerProducts.h`).
struct GroupedTiles {
  /// Those of `op`, whose lines are `view`'s; nothing if there are none:
  /// vectors must be long enough to have groups, registers must have 16 sums
  /// and more, and all numbers are f32.
  static std::optional<GroupedTiles> find(SDDMMOp op, View view,
                                          CPUTarget target);

  /// Features of a strip, of one block, and those that rounds are short enough
  /// for.
  int64_t features;
  static constexpr int64_t maxFeatures = 16;
  /// Tiles of the other features of a block, and how many blocks are taken
  /// together.
  SmallVector<Tiles, 2> streamed;
  int64_t together;
};

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_GROUPEDTILES_H

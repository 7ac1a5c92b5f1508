// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels for processors are made for.

#ifndef BSR_CODEGEN_CPU_CPUTARGET_H
#define BSR_CODEGEN_CPU_CPUTARGET_H

#include "bsr/Dialect/BSR.h"

namespace mlir::bsr::cpu {

/// Bytes of a cache line.
constexpr int64_t lineBytes = 64;
/// How far ahead loops prefetch that read several operands in order.
constexpr int64_t prefetchedBytes = 1024;

/// What `#bsr.cpu` offers, and what follows from it for kernels.
struct CPUTarget {
  explicit CPUTarget(CPUAttr attr);

  /// Lanes of one vector register, of 4 bytes each.
  int64_t lanes;
  /// Vector registers.
  int64_t count;
  /// Bytes of the first- and the second-level cache of a core.
  int64_t firstCache, secondCache;
  /// Vectors add up products of pairs of neighbouring bf16 in lanes of f32
  /// (`PairProducts.h`).
  bool hasPairDots;
  /// Tiles of bf16 are multiplied (`TileProducts.h`).
  bool hasTiles;

  /// Bytes of operands that a loop may sweep again and again from the
  /// first-level cache: half of it.
  int64_t streamedBytes() const { return firstCache / 2; }
  /// Bytes of rows that a work item reads again and again from the second-level
  /// cache: three eighths of it, for what streams past and what else there is.
  int64_t rowBytes() const { return secondCache / 8 * 3; }

  /// True if the vectors of dense products stream from the second-level cache:
  /// a row of them is 256 bytes for 24 multiply-adds, 12 cycles, of the 48
  /// bytes a cycle and more that this cache has.
  bool streamsFromSecond() const { return lanes >= 16; }

  /// Vectors of a row of a register tile of at most 6 rows, so that
  /// accumulators, one row of operands and a broadcast fit: 6 * 2 + 2 + 1 of 16
  /// registers, 6 * 4 + 4 + 1 of 32.
  int64_t tileVectors() const { return count >= 32 ? 4 : 2; }
  static constexpr int64_t tileRows = 6;
  /// Columns of a tile of sums of lanes, with as many rows as `tileVectors`:
  /// accumulators and operands fit, 2 * 4 + 2 + 4 of 16 registers, 4 * 4 + 4 +
  /// 4 of 32, and sums of 4 columns are a vector.
  static constexpr int64_t dotCols = 4;
  /// Rows of such a tile where each column is read once for all rows:
  /// accumulators, rows and one column fit, 3 * 4 + 3 + 1 of 16 registers,
  /// 6 * 4 + 6 + 1 of 32.
  int64_t dotRows() const { return count >= 32 ? 6 : 3; }
  /// Lanes of a panel of activations: the row of a register tile, so that what
  /// a tile reads lies side by side.
  int64_t panel() const { return lanes * tileVectors(); }
};

/// The processor that `op` is compiled for.
CPUTarget getCPUTarget(Operation *op);

/// The buffer of `tensor`, `[..., rows, lanes]`, in panels:
/// `[..., lanes / panel, rows, panel]`. Unused rows follow where
/// panels of a power of two of bytes would share the sets of a cache: a block
/// of rows would push itself out, panel after panel.
RankedTensorType getPanelType(RankedTensorType tensor, int64_t panel);

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_CPUTARGET_H

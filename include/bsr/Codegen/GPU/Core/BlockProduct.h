// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels ask of a product with a pattern.

#ifndef BSR_CODEGEN_GPU_CORE_BLOCKPRODUCT_H
#define BSR_CODEGEN_GPU_CORE_BLOCKPRODUCT_H

#include "bsr/Codegen/GPU/Core/TensorCores.h"
#include "bsr/Dialect/BSR.h"

namespace mlir::bsr::gpu {

/// A `bsr.spmm` or a `bsr.sddmm` that kernels can have: operands of one type,
/// which are in memory, activations as copies read them, tokens last, and a
/// result of that type or of f32, whose offsets have 32 bits.
struct BlockProduct {
  /// The product that `op` is; none if it is none, or no such one.
  static std::optional<BlockProduct> match(Operation *op);

  Operation *op;
  PatternType pattern;
  /// Of what is multiplied, and of the result.
  Type type, resultType;
  /// What is multiplied with values; or rows, and columns.
  SmallVector<Activations, 2> activations;

  int64_t getElementBytes() const { return type.getIntOrFloatBitWidth() / 8; }
  int64_t getResultBytes() const {
    return resultType.getIntOrFloatBitWidth() / 8;
  }
  /// The shorter side of a block.
  int64_t getLeastExtent() const {
    return std::min(pattern.getBlockRows(), pattern.getBlockCols());
  }
  /// True if tensor cores multiply it, of f32 with `tf32`: 16-bit elements in
  /// blocks of 4 to 64 rows and columns, f32 in blocks of 16 to 64.
  bool fitsFragments(bool tf32) const;
  /// True if lanes do: blocks of 1 to 64 rows and columns.
  bool fitsLanes() const;
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_BLOCKPRODUCT_H

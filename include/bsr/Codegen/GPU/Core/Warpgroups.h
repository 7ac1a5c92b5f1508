// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of matrices in shared memory by the tensor cores of a warpgroup.

#ifndef BSR_CODEGEN_GPU_CORE_WARPGROUPS_H
#define BSR_CODEGEN_GPU_CORE_WARPGROUPS_H

#include "bsr/Codegen/GPU/Core/BlockBuilder.h"

namespace mlir::bsr::gpu {

/// Four warps, which multiply together.
constexpr int64_t warpgroupThreads = 128;
/// A product is of 64 rows and 16 columns of the left operand.
constexpr int64_t warpgroupRows = 64, warpgroupDepth = 16;
/// Shared addresses that are swizzled alike lie so many bytes apart.
constexpr int64_t swizzlePeriod = 1024;

/// Where the first multiple of `swizzlePeriod` in shared memory lies, in bytes
/// from its begin.
Value getAlignedBegin(BlockBuilder &b);

/// An operand of a product: rows of `width` bytes, swizzled, in shared memory.
struct WarpgroupOperand {
  Value start;
  int64_t width;
  /// True if rows are of the summed dimension, and lie across it.
  bool isTransposed;
  /// Bytes from 8 rows to the next 8, and from the `width` bytes of an
  /// `isTransposed` operand to the next.
  int64_t rowsStride, leadingStride;

  /// The operand `index` times 16 further along the summed dimension.
  WarpgroupOperand at(BlockBuilder &b, int64_t index) const;
};

/// Sums of zero, or of what rows of `starts` begin with: of a fragment of
/// `warpgroupRows` and `columns`, a warp has 16 rows, and a thread of each 8
/// columns two neighbours in one row, `starts[0]`, and two 8 rows below,
/// `starts[1]`.
Value createSums(BlockBuilder &b, int64_t columns, std::array<Value, 2> starts);

/// The sums of a thread, one by one, and such sums as those of a fragment.
SmallVector<Value> unpackSums(BlockBuilder &b, Value sums);
Value packSums(BlockBuilder &b, ValueRange sums);

/// `sums` plus the product of `count * 16` columns of `lhs` and as many rows
/// of `rhs`, of `type`, bf16 or f16; all threads of the warpgroup come here.
Value multiplyAdd(BlockBuilder &b, Type type, const WarpgroupOperand &lhs,
                  const WarpgroupOperand &rhs, int64_t columns, int64_t count,
                  Value sums);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_WARPGROUPS_H

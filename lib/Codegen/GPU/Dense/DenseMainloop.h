// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a thread block brings the operands of a dense product to shared
// memory.

#ifndef BSR_LIB_CODEGEN_GPU_DENSE_DENSEMAINLOOP_H
#define BSR_LIB_CODEGEN_GPU_DENSE_DENSEMAINLOOP_H

#include "DenseTile.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"

namespace mlir::bsr::gpu {

/// The mainloop of a thread block through the inner numbers of its slice, a
/// stage at a time, with copies for the next stages under way.
class DenseMainloop {
public:
  DenseMainloop(const DenseContraction &operands, const DenseTile &tile,
                KernelBody &kernel, BlockBuilder &b);

  /// Sums that begin with 0, to which `multiplier` adds the products of all
  /// stages.
  SmallVector<Value> run(const Multiplier &multiplier);

  /// Where number `row` of the rows is stored (`DenseProduct`).
  SmallVector<Value> getStoredRow(const StoredRows &result, Value row);
  /// Calls `body` where `row` is one of the operand.
  void whenRow(Value row, llvm::function_ref<void()> body);
  /// The warp's sums for an epilogue, `sums` of which are still to be set.
  WarpSums getWarpSums(Value row);
  /// Emits the norms of the warp's sums, if only norms are stored: `row` is the
  /// first row of the lane in its tile.
  void emitNorms(KernelBody &kernel, WarpSums sums, Value row);
  bool areRowsRagged() const {
    return operands.rows.size % tile.left.tile != 0;
  }
  bool areColumnsRagged() const {
    return operands.cols.size % tile.right.tile != 0;
  }

  const DenseContraction &operands;
  const DenseTile &tile;
  BlockBuilder &b;
  /// The first row and column of the warp, in its tile and in the product.
  Value warpRow, warpCol, firstRow, firstCol;

private:
  using Group = DenseContraction::Group;

  /// The loops of `group` at `number`.
  SmallVector<Value> getDigits(const Group &group, Value number);
  /// Where number `number` of `group` begins in the operand of `side`.
  Value getOffset(const DenseContraction::Side &side, const Group &group,
                  Value number);
  /// Copies the inner numbers from `inner` on of `side`, whose own numbers
  /// begin at `first`, to `stage`.
  void copySide(const DenseContraction::Side &side,
                const DenseTile::Side &ofTile, const Group &own, Value pointer,
                Value first, Value inner, Value stage);
  /// Copies the operands of `step` to `stage`.
  void copy(Value step, Value stage);

  int64_t stageBytes, leftBytes;
  Value slice, batch, tileRow, tileCol, firstInner;
  Value left, right;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_DENSE_DENSEMAINLOOP_H

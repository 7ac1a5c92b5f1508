// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a thread block brings the operands of a dense product to shared
// memory.

#ifndef BSR_LIB_CODEGEN_GPU_DENSE_DENSEMAINLOOP_H
#define BSR_LIB_CODEGEN_GPU_DENSE_DENSEMAINLOOP_H

#include "DenseOperands.h"
#include "bsr/Codegen/GPU/Core/Model.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"

namespace mlir::bsr::gpu {

/// What a thread block computes of a dense product, and what it keeps in
/// shared memory: operands lie there as they lie in global memory.
struct DenseTile {
  /// Inner numbers of a stage.
  static constexpr int64_t innerTile = 32;
  /// Warps along the rows and along the columns of a tile.
  static constexpr int64_t rowWarps = 4, colWarps = 2;

  /// Of an operand, its own numbers, and its rows in shared memory.
  struct Side {
    int64_t tile;
    /// Bytes from row to row.
    int64_t pitch;
    /// In rows of inner numbers, 16 bytes are at position `i ^ row / 4 % 8`:
    /// what lies side by side there in 32 rows, every fourth of which is read
    /// at one time, is in different banks.
    bool isSwizzled;
  };
  /// The tile of `rows` by `cols` sums; `getPitch` is what rows of so many
  /// elements take, where `isInnerLast` or not.
  static DenseTile
  get(const DenseOperands &operands, int64_t rows, int64_t cols,
      bool isSwizzled,
      llvm::function_ref<int64_t(int64_t length, bool isInnerLast)> getPitch);

  std::string describe() const;

  /// Into how many slices inner numbers may be cut, so that thread blocks
  /// are not few; and cuts them in about `count` of these.
  int64_t getMostSlices(const DenseOperands &operands, const Chip &chip) const;
  void setSlices(const DenseOperands &operands, int64_t count);
  /// What launches do, about, of which a thread block does `products`
  /// beside copies and stores: one, and, of slices, the one that adds them up.
  SmallVector<KernelWork, 2> getLaunches(const DenseOperands &operands,
                                         KernelWork products) const;
  /// Sets the stages to the most that fit; false if 2 do not.
  bool setStages(const DenseOperands &operands, const Chip &chip);

  static int64_t getSideBytes(const Side &side, bool isInnerLast) {
    return (isInnerLast ? side.tile : innerTile) * side.pitch;
  }
  int64_t getStageBytes(const DenseOperands &operands) const {
    return getSideBytes(left, operands.left.isInnerLast) +
           getSideBytes(right, operands.right.isInnerLast);
  }
  int64_t getNumTiles(const DenseOperands &operands) const {
    return llvm::divideCeil(operands.rows.size, left.tile) *
           llvm::divideCeil(operands.cols.size, right.tile);
  }
  int64_t getWarpRows() const { return left.tile / rowWarps; }
  int64_t getWarpCols() const { return right.tile / colWarps; }

  Side left, right;
  /// Into how many slices the inner numbers are cut, and how long they are.
  int64_t slices = 1, sliceLength = 0;
  int64_t stages = 0;
};

/// The mainloop of a thread block through the inner numbers of its slice, a
/// stage at a time, with copies for the next stages under way.
class DenseMainloop {
public:
  DenseMainloop(const DenseOperands &operands, const DenseTile &tile,
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

  const DenseOperands &operands;
  const DenseTile &tile;
  BlockBuilder &b;
  /// The first row and column of the warp, in its tile and in the product.
  Value warpRow, warpCol, firstRow, firstCol;

private:
  using Group = DenseOperands::Group;

  /// The loops of `group` at `number`.
  SmallVector<Value> getDigits(const Group &group, Value number);
  /// Where number `number` of `group` begins in the operand of `side`.
  Value getOffset(const DenseOperands::Side &side, const Group &group,
                  Value number);
  /// Copies the inner numbers from `inner` on of `side`, whose own numbers
  /// begin at `first`, to `stage`.
  void copySide(const DenseOperands::Side &side, const DenseTile::Side &ofTile,
                const Group &own, Value pointer, Value first, Value inner,
                Value stage);
  /// Copies the operands of `step` to `stage`.
  void copy(Value step, Value stage);

  int64_t stageBytes, leftBytes;
  Value slice, batch, tileRow, tileCol, firstInner;
  Value left, right;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_DENSE_DENSEMAINLOOP_H

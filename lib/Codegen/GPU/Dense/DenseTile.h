// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a thread block computes of a dense product, and which of several tiles
// takes least time.

#ifndef BSR_LIB_CODEGEN_GPU_DENSE_DENSETILE_H
#define BSR_LIB_CODEGEN_GPU_DENSE_DENSETILE_H

#include "DenseContraction.h"
#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"

namespace mlir::bsr::gpu {

/// What a thread block computes of a dense product, and what it keeps in
/// shared memory: operands lie there as they lie in global memory.
struct DenseTile {
  /// Inner numbers of a stage.
  static constexpr int64_t innerTile = 32;
  /// Warps along the rows and along the columns of a tile.
  static constexpr int64_t rowWarps = 4, colWarps = 2;
  /// Where lanes keep sums: lanes of a warp along both, and neighbours of which
  /// a load brings all.
  static constexpr int64_t rowLanes = 4, colLanes = 8, laneNumbers = 4;

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
  get(const DenseContraction &operands, int64_t rows, int64_t cols,
      bool isSwizzled,
      llvm::function_ref<int64_t(int64_t length, bool isInnerLast)> getPitch);

  std::string describe() const;

  /// Into how many slices inner numbers may be cut, so that thread blocks
  /// are not few; and cuts them in about `count` of these.
  int64_t getMostSlices(const DenseContraction &operands,
                        const Chip &chip) const;
  void setSlices(const DenseContraction &operands, int64_t count);
  /// What launches do, about, of which a thread block does `products`
  /// beside copies and stores: one, and, of slices, the one that adds them up.
  SmallVector<KernelWork, 2> getLaunches(const DenseContraction &operands,
                                         KernelWork products) const;
  /// Sets the stages to the most that fit; false if 2 do not.
  bool setStages(const DenseContraction &operands, const Chip &chip);

  static int64_t getSideBytes(const Side &side, bool isInnerLast) {
    return (isInnerLast ? side.tile : innerTile) * side.pitch;
  }
  int64_t getStageBytes(const DenseContraction &operands) const {
    return getSideBytes(left, operands.left.isInnerLast) +
           getSideBytes(right, operands.right.isInnerLast);
  }
  int64_t getNumTiles(const DenseContraction &operands) const {
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

/// The tile of `operands` if tensor cores multiply them on `target`: of 16-bit
/// elements, or of f32 rounded to tf32; none if they do not, or none fits.
std::optional<DenseTile> chooseWarpTile(const DenseContraction &operands,
                                        GPUAttr target);
/// The tile of f32 whose sums lanes keep in registers, if it takes less time
/// than one element a thread, as the model has it.
std::optional<DenseTile> chooseLaneTile(const DenseContraction &operands,
                                        GPUAttr target);

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_DENSE_DENSETILE_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What multiplies by the tensor cores of a warpgroup.

#ifndef BSR_CODEGEN_GPU_CORE_WARPGROUPMULTIPLIER_H
#define BSR_CODEGEN_GPU_CORE_WARPGROUPMULTIPLIER_H

#include "bsr/Codegen/GPU/Core/Multiplier.h"
#include "bsr/Codegen/GPU/Core/Warpgroups.h"

namespace mlir::bsr::gpu {

/// Multiplies 16-bit elements by the tensor cores of a warpgroup (`wgmma`): 64
/// rows of the left operand, of which a warp has the sums of 16. Both operands
/// are read in shared memory, so nothing is loaded; sums are one value, as
/// `createSums` makes it, while they are carried through a loop.
class WarpgroupMultiplier : public Multiplier {
public:
  /// How an operand lies in shared memory: rows of `width` bytes, swizzled;
  /// what follows in a row, of inner numbers if it is not `isTransposed`, lies
  /// `leadingStride` bytes further on.
  struct Operand {
    int64_t width;
    bool isTransposed;
    int64_t leadingStride;
  };
  /// What is multiplied: elements of `type`, for so many columns of sums and
  /// inner numbers.
  struct Shape {
    Type type;
    int64_t cols, depth;
  };

  WarpgroupMultiplier(BlockBuilder &b, const Shape &shape, const Operand &left,
                      const Operand &right)
      : Multiplier(b, SumLayout(), grid(shape.cols).getNumRows(),
                   grid(shape.cols).getNumSums()),
        shape(shape), operands{left, right} {}

  Value getOffset(Side) const override { return b.constant(0); }
  SmallVector<Value> load(Side, Value pointer) const override {
    return {pointer};
  }
  SmallVector<Value> multiply(ValueRange left, ValueRange right,
                              ValueRange sums) const override;
  SmallVector<Value> fillRows(ValueRange starts) const override;
  SmallVector<Value> unpack(ValueRange sums) const override;
  /// Of `sums` that were unpacked.
  SmallVector<Value> getRows(ValueRange sums) const override;

private:
  static FragmentGrid grid(int64_t cols) { return {1, cols / fragmentCols}; }
  WarpgroupOperand getOperand(Side side, ValueRange pointer) const;

  const Shape shape;
  std::array<Operand, 2> operands;
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_WARPGROUPMULTIPLIER_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products on tensor cores.

#ifndef BSR_LIB_CODEGEN_GPU_DENSEPRODUCT_H
#define BSR_LIB_CODEGEN_GPU_DENSEPRODUCT_H

#include "Product.h"
#include "TensorCores.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// A contraction `result[batch, rows, cols] = sum over inner of left[batch,
/// rows, inner] * right[batch, cols, inner]` that tensor cores compute: 16-bit
/// elements of one type, sums in f32 that start from 0. Each group is of any
/// number of loops, which lie anywhere in memory.
class DenseProduct : public Product {
public:
  /// The product that `op` is, if it is one that `chip` runs here.
  static std::optional<DenseProduct> match(Operation *op, GPUAttr chip);

  std::optional<ResultSpace> getSpace() override;
  /// Sums of parts of the inner loops, if these are taken in parts, and memory
  /// for the epilogue.
  SmallVector<MemRefType> getScratch() override;
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class DenseProductEmitter;

  /// Loops as one number, of which the last loop is the lowest digit.
  struct Group {
    SmallVector<unsigned> loops;
    int64_t size = 1;
  };
  /// An operand, as a matrix of its own group's and of the inner numbers.
  struct Side {
    Value tensor;
    /// Of each loop, in elements; 0 where the operand does not have it.
    SmallVector<int64_t> strides;
    /// True if inner numbers lie side by side; else its own do.
    bool isInnerLast;
    /// The elements of a copy, which lie side by side.
    int64_t copied;
    /// Of its own numbers, those of a block of threads.
    int64_t tile;

    int64_t getStageBytes() const;
  };
  /// Describes `tensor`, read at `map`; false if copies cannot read it.
  bool setSide(Side &side, Value tensor, AffineMap map, Group &own);
  Group makeGroup(llvm::function_ref<bool(unsigned)> isIn) const;
  /// Makes `loop` the lowest digit of `group`; false if it is not in there.
  static bool makeLast(Group &group, unsigned loop);
  /// Finds the groups in the dimensions of the result, each of them as one run;
  /// false if they are not.
  bool setResultOrder(AffineMap map);
  int64_t getStageBytes() const;
  RankedTensorType getType() {
    return cast<RankedTensorType>(op.getResult(0).getType());
  }

  linalg::GenericOp op;
  SmallVector<int64_t> extents;
  Group batch, rows, cols, inner;
  static constexpr Group DenseProduct::*resultGroups[] = {
      &DenseProduct::batch, &DenseProduct::rows, &DenseProduct::cols};
  SmallVector<Group DenseProduct::*> resultOrder;
  Side left, right;
  /// Into how many parts the inner numbers are cut, and how long they are.
  int64_t parts, partLength;
  int64_t stages;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_DENSEPRODUCT_H

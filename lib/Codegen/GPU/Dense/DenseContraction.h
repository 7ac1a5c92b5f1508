// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products, as matrices whose rows and columns lie anywhere in memory.

#ifndef BSR_LIB_CODEGEN_GPU_DENSE_DENSECONTRACTION_H
#define BSR_LIB_CODEGEN_GPU_DENSE_DENSECONTRACTION_H

#include "BlockNorms.h"
#include "bsr/Codegen/GPU/Epilogue/Product.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr::gpu {

/// A contraction `result[batch, rows, cols] = sum over inner of left[batch,
/// rows, inner] * right[batch, cols, inner]`, where one operand may be the same
/// in all batches, of elements of one type, f32 or of
/// 16 bits, with sums in f32 that start from 0. Each group is of any number of
/// loops, which lie anywhere in memory.
struct DenseContraction {
  /// Loops as one number, of which the last loop is the lowest digit.
  struct Group {
    SmallVector<unsigned> loops;
    int64_t size = 1;
  };
  /// An operand, as a matrix of its own group's and of the inner numbers.
  struct Side {
    /// The buffer, and where the operand begins there.
    Value tensor;
    int64_t offset;
    /// Of each loop, in elements; 0 where the operand does not have it.
    SmallVector<int64_t> strides;
    /// True if inner numbers lie side by side; else its own do.
    bool isInnerLast;
    /// The elements of a copy, which lie side by side.
    int64_t copied;
  };

  /// The product that `root` is, if copies can read its operands: one whose
  /// sums are its result, or of which only `norms` of blocks are.
  static std::optional<DenseContraction> match(Operation *root);

  /// The result, of whose columns a warp has some; none if its rows or columns
  /// are not those of an epilogue.
  std::optional<ResultSpace> getSpace(int64_t warpColumns) const;
  RankedTensorType getType() const {
    return cast<RankedTensorType>(op->getResult(0).getType());
  }
  int64_t getElementBytes() const { return type.getIntOrFloatBitWidth() / 8; }

  int64_t getNumSums() const { return batch.size * rows.size * cols.size; }

  Operation *op;
  std::optional<BlockNorms> norms;
  /// Of the elements that are multiplied.
  Type type;
  SmallVector<int64_t> extents;
  Group batch, rows, cols, inner;
  /// The groups as the result has them, columns last.
  SmallVector<Group DenseContraction::*> resultOrder;
  Side left, right;

private:
  static std::optional<DenseContraction> matchProduct(linalg::GenericOp op);
  static std::optional<DenseContraction> matchScores(BlockScoresOp op);
  Group makeGroup(llvm::function_ref<bool(unsigned)> isIn) const;
  /// Makes `loop` the lowest digit of `group`; false if it is not in there.
  static bool makeLast(Group &group, unsigned loop);
  /// Makes the loops of `own` that the result, at `map`, has in front of its
  /// last ones, and apart from them, loops of batches: the other operand is the
  /// same in all of these.
  void moveToBatch(Group &own, AffineMap map);
  /// Describes `tensor`, read at `map`; false if copies cannot read it.
  bool setSide(Side &side, Value tensor, AffineMap map, Group &own);
  /// Finds the groups in the dimensions of the result, each of them as one run;
  /// false if they are not.
  bool setResultOrder(AffineMap map);
  static constexpr Group DenseContraction::*resultGroups[] = {
      &DenseContraction::batch, &DenseContraction::rows,
      &DenseContraction::cols};
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_DENSE_DENSECONTRACTION_H

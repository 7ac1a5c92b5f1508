// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes stacks of matrices apart: what is computed with a stack is computed
// with each of its matrices.

#ifndef BSR_TRANSFORMS_IMPORT_STACKS_H
#define BSR_TRANSFORMS_IMPORT_STACKS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::bsr {

/// Whether an operation that only joins or only splits dimensions leads from
/// one type to another.
bool canReshape(RankedTensorType from, RankedTensorType to);

/// `value` with type `type`, by that operation; null if there is none.
Value createReshape(OpBuilder &b, Location loc, Value value,
                    RankedTensorType type);

/// Takes stacks of a block apart. A stack is a tensor whose first dimension
/// counts others, its matrices, whatever rank these have. From the stacks given
/// it finds the operations that can be done matrix by matrix, and does them so;
/// in front of one that can't, the matrices are put together again. Every
/// rewrite is an equality.
class Stacks {
public:
  explicit Stacks(Block &block) : block(block), b(block.getParentOp()) {}

  /// Says that the matrices of `stack` are `parts`.
  void add(Value stack, ArrayRef<Value> parts);
  /// Says that the matrices of `stack` are read one by one.
  void want(Value stack);
  /// Takes apart all that is computed with the stacks given.
  void takeApart();

private:
  void makeApart(Value stack);
  bool plan(Operation *op, Value stack);
  bool planSteps(linalg::LinalgOp op, unsigned loop);
  bool planInsert(tensor::InsertSliceOp op);
  bool planExtract(tensor::ExtractSliceOp op, Value stack);
  bool planReshape(Operation *op, Value stack);

  void rewrite(Operation *op);
  void rewriteSteps(linalg::LinalgOp op, unsigned loop);
  void rewriteInsert(tensor::InsertSliceOp op);
  void rewriteExtract(tensor::ExtractSliceOp op);
  void rewriteReshape(Operation *op);
  SmallVector<Value> createStep(linalg::LinalgOp op, unsigned loop,
                                int64_t index, ValueRange inits);
  Value getMatrix(Value stack, int64_t index);
  Value createMatrix(Value stack, int64_t index);
  Value getWhole(Value value);

  Block &block;
  OpBuilder b;
  /// The operations to do matrix by matrix; for those of linalg, the loop that
  /// runs over the matrices.
  DenseMap<Operation *, unsigned> planned;
  /// The stacks that will be matrices only, and those whose matrices are read.
  DenseSet<Value> apart, wanted;
  SmallVector<Value> worklist;
  DenseMap<Value, SmallVector<Value>> matrices;
  DenseMap<Value, Value> whole;
};

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_IMPORT_STACKS_H

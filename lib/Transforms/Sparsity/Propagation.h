// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rewrites of bsr-propagate: one backward walk pulls samples up to what
// they sample, one forward walk pushes dense matrices down to their uses.

#ifndef BSR_TRANSFORMS_SPARSITY_PROPAGATION_H
#define BSR_TRANSFORMS_SPARSITY_PROPAGATION_H

#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/FloatRanges.h"
#include "bsr/Dialect/BSR.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::bsr {

/// How often each rule was applied.
struct PropagationCounts {
  unsigned spmm = 0, spmmTransposed = 0, sddmm = 0, elementWisePulled = 0,
           elementWisePushed = 0, met = 0, reduced = 0, gathered = 0,
           scattered = 0;
};

/// An operand of a product: a tensor and the loop of each of its dimensions.
struct ProductOperand {
  Value value;
  SmallVector<unsigned> loops;
};

/// True if `op` sums products of two float tensors of static shape, and every
/// loop is a row, a column, a batch or a sum.
bool isFloatContraction(linalg::LinalgOp op);

/// Operand `operand` of product `op`, then the same without the transposes in
/// front of it, one by one.
SmallVector<ProductOperand> getProductOperands(linalg::LinalgOp op,
                                               OpOperand *operand);

/// The tensor of `operand` with its dimensions in the order of `loops`.
Value alignTo(OpBuilder &b, Location loc, const ProductOperand &operand,
              ArrayRef<unsigned> loops);

/// The constant that `target`, a value of the body of `op`, has where the
/// inputs have the values `inputs` (null: any value), or null if it
/// depends.
TypedAttr foldBody(linalg::LinalgOp op, ValueRange inputs, Value target);

/// `a + b`, entry by entry.
Value addTo(OpBuilder &builder, Location loc, Value a, Value b);

/// The type of the values of `pattern` with the element type of `dense`.
RankedTensorType getValuesType(Value pattern, Value dense);

/// Creates sample(pattern, dense), of the transposed matrix with `transpose`.
Value createSample(OpBuilder &b, Location loc, Value pattern, Value dense,
                   bool transpose);

/// Rewrites a function until no rule applies. Every rule is an equality of real
/// numbers and looks at one operation and its neighbours; see the description
/// of `bsr-propagate` for the list.
class Propagation : public RewriterBase::Listener {
public:
  /// Finds the uniform tensors of `root`.
  explicit Propagation(Operation *root);

  /// Pulls the samples of the results of `op` above it. Returns true if it
  /// rewrote something.
  bool pull(Operation *op);
  /// Pushes the dense matrices that `op` reads below it. Returns true if it
  /// rewrote something.
  bool push(Operation *op);
  /// Erases what nothing uses; no rule is applied after the last time.
  void eraseDead(Operation *root, bool isLast = false);

  /// The dense products of which blocks were sampled, with the pattern, that
  /// still exist because something uses all of them.
  llvm::MapVector<Operation *, Value> products;
  PropagationCounts counts;

private:
  /// Whether to apply rules to `op`, which is asked for each operation once.
  bool isRewritten(Operation *op);
  void notifyOperationErased(Operation *op) override;
  using RewriterBase::Listener::notifyOperationReplaced;
  void notifyOperationReplaced(Operation *op, ValueRange replacement) override;

  /// The one value that all entries of `value` have, a scalar or a tensor of
  /// rank 0, or null.
  Value getUniform(Value value) const;
  /// The one value that all stored entries of `dense` have, a matrix of
  /// `pattern` or its transpose, or null.
  Value getStored(Value dense, Value pattern, bool transpose) const;
  void setUniform(Value tensor, Value scalar);
  /// Forgets the tensors whose scalar is `scalar`, and returns them.
  SmallVector<Value> takeTensors(Value scalar);
  void findUniform(Operation *op);
  void foldScalars(Operation *op);
  void findUniformResults(linalg::LinalgOp op, ValueRange inputs);
  /// True if all entries of `value` are the constant zero.
  bool isZero(Value value) const;

  /// The entries of `operand` that the loops of element-wise `op` read where
  /// `pattern` stores blocks, of the transposed matrix with `transpose`.
  Value sampleOperand(linalg::LinalgOp op, OpOperand &operand, Value pattern,
                      bool transpose);

  bool pullElementWise(linalg::LinalgOp op);
  bool pullProduct(linalg::LinalgOp op);
  /// Creates the stored blocks of `op`, a product of `as` and `bs` with loops
  /// `row` and `col`, if one of these is a one-hot matrix; else returns null.
  Value createScatter(linalg::LinalgOp op, Value pattern,
                      ArrayRef<ProductOperand> as, ArrayRef<ProductOperand> bs,
                      unsigned row, unsigned col);
  Value createScatter(ScatterAddOp op, Value pattern, bool transpose);
  void replaceSamples(ArrayRef<SampleOp> samples, Value values);

  bool replaceInits(linalg::LinalgOp op);
  bool pushMask(linalg::LinalgOp op);
  bool pushLookUp(linalg::LinalgOp op);
  /// The rows of `toDense` that a product of one-hot `xs` chooses, if they are
  /// one, with their loops; `kept` is that of the features.
  std::optional<ProductOperand> createGather(linalg::LinalgOp op,
                                             ToDenseOp toDense,
                                             ArrayRef<ProductOperand> xs,
                                             unsigned summed, unsigned kept,
                                             bool transpose);
  ProductOperand createGather(Location loc, ToDenseOp toDense,
                              const ProductOperand &indices, unsigned feature,
                              bool transpose);
  bool pushProduct(linalg::LinalgOp op);
  Value getZeroProduct(linalg::LinalgOp op, ValueRange backgrounds);
  bool pushElementWise(linalg::LinalgOp op);
  bool pushReduction(linalg::LinalgOp op);
  bool pushLineSums(linalg::LinalgOp op);
  bool splitLineSums(linalg::LinalgOp op);
  bool pushTranspose(linalg::LinalgOp op);

  IRRewriter rewriter;
  DenseMap<Value, Value> uniforms;               // a tensor to its scalar
  DenseMap<Value, SmallVector<Value>> tensorsOf; // and a scalar to those
  /// Rules are equalities: what was computed before one holds after it.
  FloatRanges intervals;
  DenseMap<Operation *, bool> rewritten;
};

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_SPARSITY_PROPAGATION_H

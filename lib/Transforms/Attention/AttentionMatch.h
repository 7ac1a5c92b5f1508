// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An attention as a program has it, and what the dimensions of its tensors are.

#ifndef BSR_TRANSFORMS_ATTENTION_ATTENTIONMATCH_H
#define BSR_TRANSFORMS_ATTENTION_ATTENTIONMATCH_H

#include "bsr/Interpreter/EntryValues.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// What the dimensions of a tensor are to an attention: numbers of its
/// dimensions (batch, query, key, feature, feature of values), or -1.
using Labels = SmallVector<int64_t>;

/// A tensor and what its dimensions are.
struct LabelledTensor {
  Value tensor;
  Labels labels;

  explicit operator bool() const { return tensor != nullptr; }
  bool operator==(const LabelledTensor &other) const {
    return tensor == other.tensor && labels == other.labels;
  }
};

/// An attention as a program has it: products, and between them a softmax of
/// `scale * product + biases` where all masks are true (or false, if they are
/// negated) and `fill` elsewhere.
struct AttentionMatch {
  /// A mask, and whether it is false where scores count.
  struct Mask {
    LabelledTensor tensor;
    bool isNegated;
  };

  /// What probabilities are multiplied with before they are summed up: a number
  /// where all masks are true (or false, if they are negated) and 0 elsewhere,
  /// times tensors. That is how dropout is written.
  struct Factor {
    double number = 1;
    SmallVector<LabelledTensor> tensors;
    SmallVector<Mask> masks;

    bool isOne() const {
      return number == 1 && tensors.empty() && masks.empty();
    }
  };

  /// The output is null if only the gradient needs the probabilities: a program
  /// that computes them again (`jax.checkpoint`).
  linalg::GenericOp scores, output;
  LabelledTensor q, k, v, y;
  SmallVector<LabelledTensor> biases;
  SmallVector<Mask> masks;
  double scale = 1;
  Factor factor;
  std::optional<double> fill;
  bool zeroEmpty = false;
  SmallVector<int64_t> extents;
  unsigned numBatchDims = 0;

  /// The gradient, if there is one: the products that make it.
  linalg::GenericOp queryGradient, keyGradient, valueGradient,
      probabilityGradient;
  LabelledTensor dy, dq, dk, dv;
  /// The gradient of a bias that is trained, a sum of those of the scores over
  /// batch dimensions, or null.
  linalg::GenericOp biasGradient;
  LabelledTensor dbias;

  /// The type of sums over keys and features.
  Type getSumType() const;
  unsigned getQueryDim() const { return numBatchDims; }
  unsigned getKeyDim() const { return numBatchDims + 1; }
  unsigned getFeatureDim() const { return numBatchDims + 2; }
  unsigned getValueFeatureDim() const { return numBatchDims + 3; }
};

/// Why a softmax of a product is no attention: the operation in the way, and
/// what of it.
struct AttentionObstacle {
  Operation *op = nullptr;
  std::string reason;
};

/// What the dimensions of the result of `reshape`, an expand_shape or a
/// collapse_shape, are if those of its source are `labels`, or the other way
/// around. Dimensions of one element come and go; what is split or merged of
/// others is -1, and `isWhole` false.
Labels getReshaped(Operation *reshape, const Labels &labels, bool isBackward,
                   bool &isWhole);

/// `tensor` without what only permutes its dimensions.
LabelledTensor getUnpermuted(LabelledTensor tensor);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_ATTENTION_ATTENTIONMATCH_H

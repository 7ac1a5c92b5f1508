// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds attention, and its gradient, among products and what is between them.

#ifndef BSR_TRANSFORMS_CLUSTERS_ATTENTIONMATCHER_H
#define BSR_TRANSFORMS_CLUSTERS_ATTENTIONMATCHER_H

#include "bsr/Analysis/EntryValues.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// What the dimensions of a tensor are to an attention: numbers of its
/// dimensions (batch, query, key, feature, feature of values), or -1.
using Labels = SmallVector<int64_t>;

/// A tensor and what its dimensions are.
struct Labelled {
  Value tensor;
  Labels labels;

  explicit operator bool() const { return tensor != nullptr; }
  bool operator==(const Labelled &other) const {
    return tensor == other.tensor && labels == other.labels;
  }
};

/// An attention as a program has it: products, and between them a softmax of
/// `scale * product + biases` where all masks are true (or false, if they are
/// negated) and `fill` elsewhere.
struct AttentionMatch {
  /// A mask, and whether it is false where scores count.
  struct Mask {
    Labelled tensor;
    bool isNegated;
  };

  linalg::GenericOp scores, output;
  Labelled q, k, v, y;
  SmallVector<Labelled> biases;
  SmallVector<Mask> masks;
  double scale = 1;
  std::optional<double> fill;
  bool zeroEmpty = false;
  SmallVector<int64_t> extents;
  unsigned numBatchDims = 0;

  /// The gradient, if there is one: the products that make it.
  linalg::GenericOp queryGradient, keyGradient, valueGradient,
      probabilityGradient;
  Labelled dy, dq, dk, dv;

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

/// `tensor` without what only permutes its dimensions.
Labelled getUnpermuted(Labelled tensor);

/// The attention whose scores are the product `scores`. Nothing if there is
/// none; `obstacle` says what is in the way if it is almost one.
std::optional<AttentionMatch> matchAttention(linalg::GenericOp scores,
                                             AttentionObstacle &obstacle);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_CLUSTERS_ATTENTIONMATCHER_H

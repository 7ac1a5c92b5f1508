// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What bsr.attention and bsr.attention_grad are made of, by name.

#ifndef BSR_DIALECT_ATTENTION_H
#define BSR_DIALECT_ATTENTION_H

#include "bsr/Dialect/BSR.h"

namespace mlir::bsr {

/// A tensor of an attention, or null, and its dimensions as those of the
/// attention: batch dimensions, query, key, feature, feature of values.
struct AttentionTensor {
  Value tensor;
  AffineMap map;

  explicit operator bool() const { return tensor != nullptr; }
  bool has(unsigned dim) const { return map.isFunctionOfDim(dim); }
};

/// What `lse` has of each row, along its first dimension: its maximum, and the
/// logarithm of the sum of powers of what its entries are less. In one number,
/// a maximum of -1e9, where all keys are padding, would swallow the logarithm.
enum class LsePart { Maximum, LogSum };

/// An attention, or the gradient of one.
struct Attention {
  explicit Attention(AttentionOp op);
  explicit Attention(AttentionGradOp op);

  Operation *op;
  AttentionTensor q, k, v, y, bias, mask, factor;
  /// Of a gradient alone.
  AttentionTensor dy, dq, dk, dv, dbias;
  Value lse;
  TypedValue<PatternType> pattern;
  double scale;
  /// What is exponentiated where the mask is false.
  double fill;
  bool zeroEmpty;
  unsigned numBatchDims;
  /// The extents of all dimensions.
  SmallVector<int64_t> extents;

  /// True if no gradient sums anything up over a batch dimension, keys and
  /// values have all of them, and probabilities have no factor.
  bool isPlain() const;
  ArrayRef<int64_t> getBatch() const {
    return ArrayRef(extents).take_front(numBatchDims);
  }
  unsigned getQueryDim() const { return numBatchDims; }
  unsigned getKeyDim() const { return numBatchDims + 1; }
  unsigned getFeatureDim() const { return numBatchDims + 2; }
  unsigned getValueFeatureDim() const { return numBatchDims + 3; }
  int64_t getQueries() const { return extents[getQueryDim()]; }
  int64_t getKeys() const { return extents[getKeyDim()]; }
  int64_t getFeatures() const { return extents[getFeatureDim()]; }
  int64_t getValueFeatures() const { return extents[getValueFeatureDim()]; }
};

/// `op` as an attention, or nothing.
std::optional<Attention> getAttention(Operation *op);

/// The tensors of `op`, an attention or a gradient, in the order of its maps.
SmallVector<Value> getMappedTensors(Operation *op);

/// The maps of `op`, an attention or a gradient, and others for them.
SmallVector<AffineMap> getTensorMaps(Operation *op);
void setTensorMaps(Operation *op, ArrayRef<AffineMap> maps);

/// What a front end says of a private function whose body, of operations of
/// upstream, computes attention or its gradient (`bsr.attention`):
///
/// - `operands`: what its arguments are, some of q, k, v, dy, bias, mask and
///   kept, in this order: q, k and v always, dy in a gradient. They are of
///   shape `batch... x queries or keys x features`; bias, mask and kept are of
///   the scores' shape, with fewer dimensions or extents of 1 where they are
///   broadcast. `mask` is true where scores count, `kept` where probabilities
///   are not dropped out. A row in which no score counts is 0.
/// - `scale`: what scores are multiplied with.
/// - `kept_factor`: what probabilities that are kept are multiplied with, if
///   there is `kept`.
///
/// The results are y, or dq, dk and dv, with the dimensions in this order.
struct AttentionFunction {
  /// Whether `attr` is as above.
  static bool isValid(Attribute attr);
  /// What `attr`, which is valid, says.
  explicit AttentionFunction(DictionaryAttr attr);

  bool isGradient() const { return llvm::is_contained(operands, "dy"); }

  SmallVector<StringRef> operands;
  double scale;
  double keptFactor = 1;
};

} // namespace mlir::bsr

#endif // BSR_DIALECT_ATTENTION_H

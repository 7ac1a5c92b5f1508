// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention as tensor cores take it: queries, keys and values as matrices that
// copies bring to shared memory, and how they are cut.

#ifndef BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONOPERANDS_H
#define BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONOPERANDS_H

#include "bsr/Codegen/GPU/Core/TensorCores.h"
#include "bsr/Dialect/Attention.h"

namespace mlir::bsr::gpu {

/// An operand of an attention, as it lies in memory: at each point of the batch
/// dimensions a matrix of tokens (queries or keys) by features, of which either
/// lie side by side.
struct AttentionMatrix {
  /// `operand`, if copies can read it.
  static std::optional<AttentionMatrix> match(const Attention &attention,
                                              const AttentionTensor &operand,
                                              unsigned tokenDim,
                                              unsigned featureDim);

  /// Fragments have 16 features: those that a matrix lacks are zeros.
  int64_t getPaddedFeatures() const {
    return llvm::alignTo(features, fragmentRows);
  }

  /// The buffer, and where the operand begins there.
  Value tensor;
  int64_t offset;
  /// Of each dimension of the attention, in elements.
  SmallVector<int64_t> strides;
  unsigned tokenDim, featureDim;
  int64_t tokens, features;
  bool isFeatureLast;
  /// The elements of a copy.
  int64_t copied;
};

/// An attention, or a gradient, of 16-bit operands of one type.
struct AttentionOperands {
  /// Those of `attention`, if tensor cores take it.
  static std::optional<AttentionOperands> match(const Attention &attention);

  /// How many tiles of `tile` tokens there are along a dimension.
  int64_t getNumTiles(unsigned dim, int64_t tile) const {
    return llvm::divideCeil(attention.extents[dim], tile);
  }
  bool isRagged(unsigned dim, int64_t tile) const {
    return attention.extents[dim] % tile != 0;
  }

  /// The most features of queries, keys and values.
  static constexpr int64_t maxFeatures = 128;

  Attention attention;
  AttentionMatrix q, k, v;
  /// Of a gradient.
  std::optional<AttentionMatrix> dy;
  /// Of what is multiplied.
  Type type;
  int64_t batches = 1;
  /// Tokens of a tile, which divide the extents of a pattern's blocks.
  int64_t queryTile, keyTile;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONOPERANDS_H

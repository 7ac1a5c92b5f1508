// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a warp multiplies of an attention, and its sums, in registers.

#ifndef BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONFRAGMENTS_H
#define BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONFRAGMENTS_H

#include "AttentionTile.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"

namespace mlir::bsr::gpu {

/// A warp's sums of a product: 16 rows by columns in fragments of 8, four a
/// lane, which are two neighbouring columns of each of two rows that are 8
/// apart.
using FragmentSums = SmallVector<Value>;

/// What a warp's rows are as left operands of `type`, one fragment for 16
/// features: those of `operand`, which begins at `begin`.
class LeftFragments {
public:
  LeftFragments() = default;
  LeftFragments(BlockBuilder &b, Type type, const AttentionTile &operand,
                Value begin)
      : b(&b), type(type), operand(operand), begin(begin) {}
  /// Loads all fragments at once, and keeps them in registers.
  void hold();
  /// Products of these and of what is in `right`, a row for each token there.
  FragmentSums multiply(const AttentionTile &right, Value rightBegin);

private:
  WarpMultiplier getMultiplier(const AttentionTile &right) const;

  BlockBuilder *b = nullptr;
  Type type;
  AttentionTile operand;
  Value begin;
  SmallVector<Value> held;
};

/// Adds to `sums`, a column for each feature, products of `scores`, numbers
/// with a column for each token of `right`, rounded to `type`, and `right`.
FragmentSums addProducts(BlockBuilder &b, Type type, ValueRange sums,
                         ValueRange scores, const AttentionTile &right,
                         Value begin);

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONFRAGMENTS_H

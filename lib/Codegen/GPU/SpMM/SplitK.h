// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which groups of lines are cut, so that several thread blocks share one.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_SPLITK_H
#define BSR_LIB_CODEGEN_GPU_SPMM_SPLITK_H

#include "bsr/Codegen/GPU/Core/BlockBuilder.h"

namespace mlir::bsr::gpu {

struct SpMMPlan;

/// Cuts the groups of a plan that have much more to do than others: their
/// chunks in slices of equal length. Of some lengths that slices may have, it
/// takes the one with which a launch is shortest, about; it cuts none if that
/// is not an eighth shorter.
class SplitK {
public:
  /// `arrays` are those of `plan`.
  SplitK(const SpMMPlan &plan, ValueRange arrays);

  /// Emits the launch that decides.
  void emit(OpBuilder &b, Location loc) const;

  /// Integers of a row of what it writes: for each group and then each slice
  /// the group, the first chunk, the end and 1, or zeros if it has nothing to
  /// do; for each group its first slice and how many it has.
  static constexpr int64_t fields = 4;
  static SmallVector<Value> loadRow(BlockBuilder &b, Value array, Value number);

private:
  friend class GroupSplitter;

  const SpMMPlan &plan;
  Value numChunks, costs, items, groups;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_SPLITK_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which groups of lines are cut, so that several thread blocks share one.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_SPLITK_H
#define BSR_LIB_CODEGEN_GPU_SPMM_SPLITK_H

#include "SpMMPlan.h"

namespace mlir::bsr::gpu {

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

private:
  friend class GroupSplitter;

  const SpMMPlan &plan;
  Value numChunks, costs, items, groups;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_SPLITK_H

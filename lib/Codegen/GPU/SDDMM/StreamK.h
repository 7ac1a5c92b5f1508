// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the steps of all windows are shared among thread blocks or clusters.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_STREAMK_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_STREAMK_H

#include "SDDMMTile.h"

namespace mlir::bsr::gpu {

/// What an owner, a thread block or a cluster, has of a window: its group,
/// its number there, the how manieth of the owner it is, and the steps from
/// `low` to below `high`.
struct WindowRange {
  Value group, number, ordinal, low, high;
};

/// The steps of all windows, in their order, which owners have one share after
/// the other of. A step costs 1, or if windows are those of clusters what the
/// thread block with the most blocks does, and shares cost the same.
class StreamK {
public:
  /// `arrays` are those of `SDDMMPlan`.
  StreamK(BlockBuilder &b, const SDDMMTile &tile, const SDDMMShape &shape,
          const SDDMMPlan &windows, ValueRange arrays);

  /// Calls `body` for all windows that `owner` has a share of, with what it
  /// carries on.
  SmallVector<Value>
  forWindows(Value owner, ValueRange carried,
             llvm::function_ref<SmallVector<Value>(const WindowRange &window,
                                                   ValueRange carried)>
                 body);

  /// A group: the number of its first window, of all, and what the steps of a
  /// number before that window cost, one each.
  struct Group {
    Value number, firstWindow, before;
  };
  Group getGroup(Value number);
  /// The first and the last owner of a window of `group`.
  std::pair<Value, Value> getOwners(const Group &group, Value inGroup);
  /// The first window of an owner.
  Value getFirstWindow(Value owner);

private:
  /// What a step of a window costs, and those of the windows before.
  struct Cost {
    Value before, own;
  };
  Cost getCost(const Group &group, Value inGroup);
  /// The group before which the groups come to at most `number`, of windows or
  /// of what `ofGroup` counts.
  Group findGroup(Value number, SDDMMPlan::Array ofGroup, int64_t times);
  /// The window at which the steps before cost at most `cost`.
  Value findWindow(Value cost);

  BlockBuilder &b;
  const SDDMMPlan &windows;
  int64_t steps;
  ValueRange arrays;
  bool isWeighted;
  /// The array that has what the windows of a group cost.
  SDDMMPlan::Array costs;
  /// What a step of all windows costs, and all steps of an owner.
  Value all, share;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_STREAMK_H

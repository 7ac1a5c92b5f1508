// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the steps of all windows are shared among thread blocks or clusters.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_WINDOWSHARE_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_WINDOWSHARE_H

#include "WindowTile.h"

namespace mlir::bsr::gpu {

/// What an owner, a thread block or a cluster, has of a window: its group,
/// its number there, the how manieth of the owner it is, and the steps from
/// `low` to below `high`.
struct WindowPart {
  Value group, number, part, low, high;
};

/// The steps of all windows, in their order, which owners have one share after
/// the other of. A step costs 1, or if windows are those of clusters what the
/// thread block with the most blocks does, and shares cost the same.
class WindowShares {
public:
  /// `arrays` are those of `SampledWindows`.
  WindowShares(BlockBuilder &b, const WindowTile &tile,
               const SampledShape &shape, const SampledWindows &windows,
               ValueRange arrays);

  /// Calls `body` for all windows that `owner` has a share of, with what it
  /// carries on.
  SmallVector<Value>
  forWindows(Value owner, ValueRange carried,
             llvm::function_ref<SmallVector<Value>(const WindowPart &window,
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
  Group findGroup(Value number, SampledWindows::Array ofGroup, int64_t times);
  /// The window at which the steps before cost at most `cost`.
  Value findWindow(Value cost);

  BlockBuilder &b;
  const SampledWindows &windows;
  int64_t steps;
  ValueRange arrays;
  bool isWeighted;
  /// The array that has what the windows of a group cost.
  SampledWindows::Array costs;
  /// What a step of all windows costs, and all steps of an owner.
  Value all, share;
};

/// Stores sums of fragments in `parts`, the memory of WarpSDDMM, from fragment
/// `fragment` on of the block at `at`: what has it, its window there, and its
/// number in that.
void storePart(BlockBuilder &b, Value parts, ValueRange at, Value fragment,
               ValueRange sums);

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_WINDOWSHARE_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the steps of all windows are shared among blocks of threads or clusters.

#ifndef BSR_LIB_CODEGEN_GPU_WINDOWSHARE_H
#define BSR_LIB_CODEGEN_GPU_WINDOWSHARE_H

#include "WindowTile.h"

namespace mlir::bsr {

/// What an owner, a block of threads or a cluster, has of a window: its group,
/// its number there, the how manieth of the owner it is, and the steps from
/// `low` to below `high`.
struct WindowPart {
  Value group, number, part, low, high;
};

/// The steps of all windows, in their order, which owners have one share after
/// the other of.
class WindowShares {
public:
  /// `counts` are those of `SampledWindows`.
  WindowShares(BlockBuilder &b, const WindowTile &tile,
               const SampledShape &shape, const SampledWindows &windows,
               Value counts);

  /// Calls `body` for all windows that `owner` has steps of, with what it
  /// carries on.
  SmallVector<Value>
  forWindows(Value owner, ValueRange carried,
             llvm::function_ref<SmallVector<Value>(const WindowPart &window,
                                                   ValueRange carried)>
                 body);

  /// The first and the last owner of `window`, and the first window of an
  /// owner.
  std::pair<Value, Value> getOwners(Value window);
  Value getFirstWindow(Value owner);

private:
  BlockBuilder &b;
  const SampledWindows &windows;
  int64_t steps;
  Value counts;
  /// All windows, and the steps of an owner.
  Value all, share;
};

/// What a step has of the tokens of activations: its batch, and the first
/// token.
struct StepTokens {
  Value batch, first;
};
StepTokens getStepTokens(BlockBuilder &b, const WindowTile &tile,
                         const SampledShape &shape, Value step);

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_WINDOWSHARE_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the steps of all windows are shared among blocks of threads or clusters.

#include "WindowShare.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;

/// `x / y` and `x * y` of numbers that are not negative.
static Value divide(BlockBuilder &b, Value x, Value y) {
  return arith::DivUIOp::create(b.b, b.loc, x, y);
}
static Value multiply(BlockBuilder &b, Value x, Value y) {
  return arith::MulIOp::create(b.b, b.loc, x, y);
}

static Value max(BlockBuilder &b, Value x, Value y) {
  return b.select(b.less(x, y), y, x);
}

WindowShares::WindowShares(BlockBuilder &b, const WindowTile &tile,
                           const SampledShape &shape,
                           const SampledWindows &windows, Value counts)
    : b(b), windows(windows), steps(tile.getSteps(shape)), counts(counts),
      all(SampledWindows::countBefore(b, counts,
                                      b.constant(windows.getNumGroups()))) {
  int64_t unit = tile.getUnit(shape);
  Value units = b.mul(all, steps / unit);
  Value ofOwner = b.div(b.add(units, tile.grid - 1), tile.grid);
  int64_t least = std::min(WindowTile::leastSteps, steps);
  share = max(b, b.mul(ofOwner, unit), b.constant(least));
}

Value WindowShares::getFirstWindow(Value owner) {
  return b.div(::multiply(b, owner, share), steps);
}

std::pair<Value, Value> WindowShares::getOwners(Value window) {
  Value begin = b.mul(window, steps);
  return {divide(b, begin, share), divide(b, b.add(begin, steps - 1), share)};
}

SmallVector<Value> WindowShares::forWindows(
    Value owner, ValueRange carried,
    llvm::function_ref<SmallVector<Value>(const WindowPart &, ValueRange)>
        body) {
  Value begin = ::multiply(b, owner, share);
  Value end = b.min(b.add(begin, share), b.mul(all, steps));
  Value first = b.div(begin, steps);
  return b.loop(first, b.div(b.add(end, steps - 1), steps), 1, carried,
                [&](Value window, ValueRange carried) {
                  auto found = windows.findGroup(b, counts, window);
                  Value before = b.mul(window, steps);
                  WindowPart part{found.first, b.sub(window, found.second),
                                  b.sub(window, first),
                                  max(b, b.sub(begin, before), b.constant(0)),
                                  b.min(b.sub(end, before), b.constant(steps))};
                  return body(part, carried);
                });
}

StepTokens bsr::getStepTokens(BlockBuilder &b, const WindowTile &tile,
                              const SampledShape &shape, Value step) {
  Value batch = b.constant(0);
  if (shape.rows.batches != 1) {
    int64_t ofBatch = tile.getStepsOfBatch(shape);
    batch = b.div(step, ofBatch);
    step = b.rem(step, ofBatch);
  }
  return {batch, b.mul(step, tile.tokens)};
}

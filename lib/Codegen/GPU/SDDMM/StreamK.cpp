// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the steps of all windows are shared among thread blocks or clusters.

#include "StreamK.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

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

/// The sum of the entries of `array` before `end`.
static Value addBefore(BlockBuilder &b, Value array, Value end) {
  return SDDMMPlan::countBefore(b, array, end);
}

StreamK::StreamK(BlockBuilder &b, const SDDMMTile &tile,
                 const SDDMMShape &shape, const SDDMMPlan &windows,
                 ValueRange arrays)
    : b(b), windows(windows), steps(tile.getSteps(shape)), arrays(arrays),
      isWeighted(tile.shares != 1),
      costs(isWeighted ? SDDMMPlan::Costs : SDDMMPlan::Counts),
      all(addBefore(b, arrays[costs], b.constant(windows.getNumGroups()))) {
  int64_t unit = tile.getUnit(shape);
  Value units = b.mul(all, steps / unit);
  Value ofOwner = b.div(b.add(units, tile.grid - 1), tile.grid);
  share = max(b, b.mul(ofOwner, unit), b.constant(tile.getLeastShare(shape)));
}

StreamK::Group StreamK::getGroup(Value number) {
  Value first = addBefore(b, arrays[SDDMMPlan::Counts], number);
  return {number, first,
          isWeighted ? addBefore(b, arrays[costs], number) : first};
}

StreamK::Group StreamK::findGroup(Value number, SDDMMPlan::Array ofGroup,
                                  int64_t times) {
  Value zero = b.constant(0);
  SmallVector<Value> last = b.loop(
      zero, b.constant(windows.getNumGroups()), 1,
      {zero, zero, zero, zero, zero},
      [&](Value at, ValueRange carried) -> SmallVector<Value> {
        Value count = b.add(carried[0],
                            b.load(arrays[SDDMMPlan::Counts], ValueRange{at}));
        Value cost = isWeighted ? b.add(carried[1],
                                        b.load(arrays[costs], ValueRange{at}))
                                : count;
        Value end = ofGroup == SDDMMPlan::Counts ? count : cost;
        Value isBefore = b.less(b.mul(end, times), b.add(number, 1));
        return {count, cost, b.select(isBefore, b.add(at, 1), carried[2]),
                b.select(isBefore, count, carried[3]),
                b.select(isBefore, cost, carried[4])};
      });
  return {last[2], last[3], last[4]};
}

StreamK::Cost StreamK::getCost(const Group &group, Value inGroup) {
  if (!isWeighted)
    return {b.add(group.before, inGroup), b.constant(1)};
  auto getOwn = [&](Value window) {
    return windows.getCost(
        b, b.load(arrays[SDDMMPlan::Sizes],
                  ValueRange{group.number,
                             b.multiplyAdd(window, 2, b.constant(1))}));
  };
  Value before =
      b.loop(b.constant(0), inGroup, 1, group.before,
             [&](Value window, ValueRange carried) {
               return SmallVector<Value>{b.add(carried[0], getOwn(window))};
             })[0];
  return {before, getOwn(inGroup)};
}

Value StreamK::findWindow(Value cost) {
  Group group = findGroup(cost, costs, steps);
  // Without windows, any group will do.
  group.number = b.min(group.number, b.constant(windows.getNumGroups() - 1));
  Value count = b.load(arrays[SDDMMPlan::Counts], group.number);
  SmallVector<Value> last = b.loop(
      b.constant(0), count, 1, {group.firstWindow, group.before},
      [&](Value window, ValueRange carried) -> SmallVector<Value> {
        Value size = b.load(
            arrays[SDDMMPlan::Sizes],
            ValueRange{group.number, b.multiplyAdd(window, 2, b.constant(1))});
        Value end = b.add(carried[1], windows.getCost(b, size));
        Value isBefore = b.less(b.mul(end, steps), b.add(cost, 1));
        return {b.select(isBefore, b.add(carried[0], 1), carried[0]), end};
      });
  return last[0];
}

Value StreamK::getFirstWindow(Value owner) {
  Value begin = ::multiply(b, owner, share);
  return isWeighted ? findWindow(begin) : b.div(begin, steps);
}

std::pair<Value, Value> StreamK::getOwners(const Group &group, Value inGroup) {
  Cost cost = getCost(group, inGroup);
  Value begin = b.mul(cost.before, steps);
  Value last = b.sub(b.mul(b.add(cost.before, cost.own), steps), b.constant(1));
  return {divide(b, begin, share), divide(b, last, share)};
}

SmallVector<Value> StreamK::forWindows(
    Value owner, ValueRange carried,
    llvm::function_ref<SmallVector<Value>(const WindowRange &, ValueRange)>
        body) {
  Value zero = b.constant(0);
  Value begin = ::multiply(b, owner, share);
  Value end = b.min(b.add(begin, share), b.mul(all, steps));
  Value first, last;
  if (isWeighted) {
    // Owners behind the last step have none.
    Value isOwner = b.less(begin, end);
    first = findWindow(b.select(isOwner, begin, zero));
    last = b.select(
        isOwner,
        b.add(findWindow(b.sub(max(b, end, b.constant(1)), b.constant(1))), 1),
        first);
  } else {
    first = b.div(begin, steps);
    last = b.div(b.add(end, steps - 1), steps);
  }
  return b.loop(first, last, 1, carried, [&](Value window, ValueRange carried) {
    Group group = findGroup(window, SDDMMPlan::Counts, 1);
    Value inGroup = b.sub(window, group.firstWindow);
    Cost cost = getCost(group, inGroup);
    Value before = b.mul(cost.before, steps);
    // The steps that begin before the share does are another owner's.
    auto getStep = [&](Value at) {
      Value inWindow = max(b, b.sub(at, before), zero);
      if (!isWeighted)
        return inWindow;
      return divide(b, b.sub(b.add(inWindow, cost.own), b.constant(1)),
                    cost.own);
    };
    WindowRange range{group.number, inGroup, b.sub(window, first),
                      getStep(begin), b.min(getStep(end), b.constant(steps))};
    return body(range, carried);
  });
}

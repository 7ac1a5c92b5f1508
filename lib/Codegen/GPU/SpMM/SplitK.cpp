// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which groups of lines are cut, so that several thread blocks share one:
// one warp decides, whose lanes have neighbouring groups.

#include "SplitK.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

SplitK::SplitK(const SpMMPlan &plan, ValueRange arrays)
    : plan(plan), numChunks(arrays.front()), costs(arrays.drop_back(2).back()),
      items(arrays.drop_back().back()), groups(arrays.back()) {}

namespace mlir::bsr::gpu {
/// What a lane does.
class GroupSplitter {
public:
  GroupSplitter(const SplitK &arrays, BlockBuilder &b)
      : arrays(arrays), plan(arrays.plan), b(b) {
    int64_t count =
        llvm::divideCeil(plan.getNumGroups(), BlockBuilder::warpThreads);
    first = b.mul(b.lane, count);
    end = b.min(b.add(first, count), b.constant(plan.getNumGroups()));
  }

  void emit() {
    Value most = findMost();
    Value own = evaluate(most).slices;
    Value all = addLanes(own);
    cutGroups(most, addLanesBefore(own));
    clearRest(all);
  }

private:
  /// What there is if slices have to do at most something: slices, groups that
  /// are cut, and what takes longest.
  struct Outcome {
    Value slices, cut, longest;
  };

  Value divide(Value x, Value y) {
    return arith::DivUIOp::create(b.b, b.loc, x, y);
  }
  Value divideUp(Value x, Value y) {
    return divide(b.add(x, b.sub(y, b.constant(1))), y);
  }
  /// A word of shared memory of each lane.
  Value getWord(Value lane) { return b.at(b.mul(lane, 4)); }
  /// What the lane has whose number differs in the bits of `mask`. Through
  /// memory: the model knows what is there.
  Value exchange(Value value, int64_t mask) {
    b.storeShared(value, getWord(b.lane));
    b.barrier();
    Value other =
        b.load(getWord(b.bitXor(b.lane, b.constant(mask))), b.b.getI32Type());
    b.barrier();
    return other;
  }
  Value addLanes(Value value) {
    for (int64_t mask = 1; mask != BlockBuilder::warpThreads; mask *= 2)
      value = b.add(value, exchange(value, mask));
    return value;
  }
  Value getLargest(Value value) {
    for (int64_t mask = 1; mask != BlockBuilder::warpThreads; mask *= 2)
      value = b.max(value, exchange(value, mask));
    return value;
  }
  /// The sum of what the lanes before this one have.
  Value addLanesBefore(Value value) {
    b.storeShared(value, getWord(b.lane));
    b.barrier();
    Value zero = b.constant(0);
    return b.loop(zero, b.lane, 1, zero,
                  [&](Value lane, ValueRange sum) -> SmallVector<Value> {
                    Value other = b.load(getWord(lane), b.b.getI32Type());
                    return {b.add(sum.front(), other)};
                  })[0];
  }

  /// The slices of a group with so much to do and so many chunks: none if it is
  /// not cut.
  Value countSlices(Value cost, Value chunks, Value most) {
    Value count = b.min(divideUp(cost, most), chunks);
    return b.select(b.less(b.constant(1), count), count, b.constant(0));
  }

  /// What the groups of the lane come to.
  Outcome evaluate(Value most) {
    Value zero = b.constant(0);
    SmallVector<Value> all = b.loop(
        first, end, 1, {zero, zero, zero},
        [&](Value group, ValueRange carried) -> SmallVector<Value> {
          Value cost = b.load(arrays.costs, group);
          Value slices =
              countSlices(cost, b.load(arrays.numChunks, group), most);
          Value isCut = b.less(zero, slices);
          Value longest = divideUp(cost, b.max(slices, b.constant(1)));
          return {b.add(carried[0], slices),
                  b.add(carried[1], b.select(isCut, b.constant(1), zero)),
                  b.max(carried[2], longest)};
        });
    return {all[0], all[1], all[2]};
  }

  /// How long a launch takes, about, if groups have `mean` to do: as long as
  /// what takes longest, and if not all run at one time, as long as all others
  /// before.
  Value getTime(const Outcome &outcome, Value mean) {
    int64_t groups = plan.getNumGroups();
    Value turns = b.div(b.mul(mean, plan.turns), SpMMPlan::turnUnits);
    Value items = b.add(b.sub(outcome.slices, outcome.cut), groups);
    Value isAtOnce = b.less(items, b.constant(plan.itemsAtOnce + 1));
    return b.add(outcome.longest, b.select(isAtOnce, b.constant(0), turns));
  }

  /// What a slice has to do at most; if none is cut, more than any group has.
  Value findMost() {
    Value none = b.constant(INT32_MAX / 2);
    Value zero = b.constant(0);
    Value total =
        b.loop(first, end, 1, zero,
               [&](Value group, ValueRange sum) -> SmallVector<Value> {
                 return {b.add(sum.front(), b.load(arrays.costs, group))};
               })[0];
    Value mean = b.add(b.div(addLanes(total), plan.getNumGroups()), 1);
    auto evaluateAll = [&](Value most) {
      Outcome own = evaluate(most);
      return Outcome{addLanes(own.slices), addLanes(own.cut),
                     getLargest(own.longest)};
    };
    Value uncut = getTime(evaluateAll(none), mean);
    constexpr int64_t leastGain = 8;
    Value least = b.sub(uncut, b.div(uncut, leastGain));
    // From the mean on, each a quarter more than the last.
    constexpr int64_t steps = 12, stepDivisor = 4;
    return b.loop(zero, b.constant(steps), 1, {mean, none, least},
                  [&](Value, ValueRange carried) -> SmallVector<Value> {
                    Value most = carried[0];
                    Outcome outcome = evaluateAll(most);
                    Value time = getTime(outcome, mean);
                    Value fits =
                        b.less(outcome.slices, b.constant(plan.numSlices + 1));
                    Value isBetter = b.bitAnd(fits, b.less(time, carried[2]));
                    return {b.add(b.add(most, b.div(most, stepDivisor)), 1),
                            b.select(isBetter, most, carried[1]),
                            b.select(isBetter, time, carried[2])};
                  })[1];
  }

  void writeRow(Value array, Value number, ArrayRef<Value> row) {
    for (auto [field, value] : llvm::enumerate(row))
      b.store(value, array,
              ValueRange{number, b.constant(static_cast<int64_t>(field))});
  }

  /// Writes which chunks each has; the slices of the lane begin at
  /// `firstSlice`.
  void cutGroups(Value most, Value firstSlice) {
    Value zero = b.constant(0), one = b.constant(1);
    b.loop(first, end, 1, firstSlice,
           [&](Value group, ValueRange carried) -> SmallVector<Value> {
             Value slice = carried.front();
             Value chunks = b.load(arrays.numChunks, group);
             Value count =
                 countSlices(b.load(arrays.costs, group), chunks, most);
             Value isWhole = b.equal(count, zero);
             writeRow(arrays.items, group,
                      {group, zero, b.select(isWhole, chunks, zero),
                       b.select(isWhole, one, zero)});
             writeRow(arrays.groups, group, {slice, count, zero, zero});
             auto getFirst = [&](Value number) {
               Value scaled = arith::MulIOp::create(b.b, b.loc, chunks, number);
               return divide(scaled, count);
             };
             b.loop(zero, count, 1, {}, [&](Value number, ValueRange) {
               Value item = b.add(b.add(slice, number), plan.getNumGroups());
               writeRow(
                   arrays.items, item,
                   {group, getFirst(number), getFirst(b.add(number, 1)), one});
               return SmallVector<Value>();
             });
             return {b.add(slice, count)};
           });
  }

  /// Slices from `all` on there are not.
  void clearRest(Value all) {
    b.loop(b.add(all, b.lane), b.constant(plan.numSlices),
           BlockBuilder::warpThreads, {}, [&](Value slice, ValueRange) {
             writeRow(arrays.items, b.add(slice, plan.getNumGroups()),
                      SmallVector<Value>(SpMMPlan::itemFields, b.constant(0)));
             return SmallVector<Value>();
           });
  }

  const SplitK &arrays;
  const SpMMPlan &plan;
  BlockBuilder &b;
  /// The groups of the lane.
  Value first, end;
};
} // namespace mlir::bsr::gpu

void SplitK::emit(OpBuilder &b, Location loc) const {
  constexpr int64_t threads = BlockBuilder::warpThreads;
  BlockBuilder::launch(
      b, loc, {1, 1}, threads, /*sharedBytes=*/4 * threads,
      [&](BlockBuilder &block) { GroupSplitter(*this, block).emit(); });
}

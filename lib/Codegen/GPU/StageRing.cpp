// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stages of shared memory that tensor copies fill and warps read, in a ring.

#include "StageRing.h"
#include "Warpgroups.h"

using namespace mlir;
using namespace mlir::bsr;

StageRing::StageRing(BlockBuilder &b, int64_t stages, int64_t bytes)
    : b(b), stages(stages), bytes(bytes), begin(getAlignedBegin(b)),
      barriers(b.add(begin, stages * bytes)) {}

int64_t StageRing::getSharedBytes(int64_t stages, int64_t bytes) {
  return stages * (bytes + 2 * barrierBytes) + swizzlePeriod;
}

int64_t StageRing::getStages(int64_t sharedLimit, int64_t bytes, int64_t most) {
  int64_t rest =
      sharedLimit - BlockBuilder::sharedSymbolBytes - getSharedBytes(0, bytes);
  return std::min(most, rest / (bytes + 2 * barrierBytes));
}

void StageRing::init(int64_t readers, int64_t blocks) {
  b.when(b.equal(b.thread, b.constant(0)), [&] {
    for (int64_t number = 0; number != stages; ++number) {
      Stage stage{b.constant(number), Value()};
      initBarrier(b, getFull(stage), /*arrivals=*/1);
      initBarrier(b, getEmpty(stage), readers);
    }
    publishBarriers(b);
  });
  waitForAll(blocks);
}

void StageRing::waitForAll(int64_t blocks) {
  if (blocks == 1)
    b.barrier();
  else
    waitForCluster(b);
}

StageRing::Stage StageRing::getFirst() {
  return {b.constant(0), b.constant(0)};
}

StageRing::Stage StageRing::getNext(Stage stage) {
  Value next = b.add(stage.number, 1);
  Value isLast = b.equal(next, b.constant(stages));
  Value other = b.sub(b.constant(1), stage.parity);
  return {b.select(isLast, b.constant(0), next),
          b.select(isLast, other, stage.parity)};
}

Value StageRing::getBegin(Stage stage) {
  return b.multiplyAdd(stage.number, bytes, begin);
}

Value StageRing::getFull(Stage stage) {
  return b.at(b.multiplyAdd(stage.number, barrierBytes, barriers));
}

Value StageRing::getEmpty(Stage stage) {
  return b.at(b.add(b.multiplyAdd(stage.number, barrierBytes, barriers),
                    barrierBytes * stages));
}

void StageRing::waitForEmpty(Stage stage) {
  waitForPhase(b, getEmpty(stage), b.sub(b.constant(1), stage.parity));
}

void StageRing::waitForFull(Stage stage) {
  waitForPhase(b, getFull(stage), stage.parity);
}

void StageRing::release(Stage stage, int64_t blocks) {
  Value barrier = getEmpty(stage);
  // Each of the first lanes says so to one of them.
  b.when(b.less(b.lane, b.constant(blocks)),
         [&] { arriveAt(b, barrier, b.lane); });
}

SmallVector<Value> StageRing::forStages(
    Value low, Value high, Stage &stage, ValueRange carried,
    llvm::function_ref<SmallVector<Value>(Value, Stage, ValueRange)> body) {
  SmallVector<Value> all(carried);
  all.append({stage.number, stage.parity});
  SmallVector<Value> last =
      b.loop(low, high, 1, all, [&](Value number, ValueRange carried) {
        Stage stage{carried.drop_back().back(), carried.back()};
        SmallVector<Value> result = body(number, stage, carried.drop_back(2));
        Stage next = getNext(stage);
        result.append({next.number, next.parity});
        return result;
      });
  stage.parity = last.pop_back_val();
  stage.number = last.pop_back_val();
  return last;
}

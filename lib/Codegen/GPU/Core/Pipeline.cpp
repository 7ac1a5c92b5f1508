// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mainloops whose operands are copied to shared memory some steps ahead.

#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "bsr/Codegen/GPU/Core/Mbarriers.h"
#include "bsr/Codegen/GPU/Core/Warpgroups.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

//===----------------------------------------------------------------------===//
// CopyPipeline
//===----------------------------------------------------------------------===//

void CopyPipeline::copyStep(StepRange steps, Value step, Value offset,
                            ValueRange sources, Copy copy) {
  b.when(b.less(step, steps.high),
         [&] { copy(step, getStage(offset), sources); });
  // A step without copies is a group, too: groups count steps.
  b.commitCopies();
}

Value CopyPipeline::getNext(Value offset) {
  Value next = b.add(offset, bytes);
  Value isLast = b.equal(next, b.constant(stages * bytes));
  return b.select(isLast, b.constant(0), next);
}

void CopyPipeline::waitForSeparateCopies() {
  b.waitForCopies(getAhead());
  b.barrier();
}

SmallVector<Value> CopyPipeline::run(
    StepRange steps, Copy copy, llvm::function_ref<SmallVector<Value>()> begin,
    Compute compute, LoadStep loadSources, LoadStep loadOperands) {
  int64_t ahead = getAhead();
  for (int64_t number = 0; number != ahead; ++number) {
    Value step = b.add(steps.low, number);
    copyStep(steps, step, b.constant(number * bytes), loadSources(step), copy);
  }
  SmallVector<Value> sources = loadSources(b.add(steps.low, ahead));

  SmallVector<Value> all = begin();
  size_t numCarried = all.size();
  all.append({b.constant(0), b.constant(ahead * bytes)});
  SmallVector<Value> operands = loadOperands(steps.low);
  llvm::append_range(all, operands);
  llvm::append_range(all, sources);
  SmallVector<Value> last =
      b.loop(steps.low, steps.high, 1, all, [&](Value step, ValueRange all) {
        ValueRange carried = all.take_front(numCarried);
        Value read = all[numCarried], filled = all[numCarried + 1];
        ValueRange loaded = all.drop_front(numCarried + 2);
        b.waitForCopies(ahead - 1);
        b.barrier();
        Value later = b.add(step, ahead);
        copyStep(steps, later, filled, loaded.drop_front(operands.size()),
                 copy);
        SmallVector<Value> sources = loadSources(b.add(later, 1));
        SmallVector<Value> nextOperands = loadOperands(b.add(step, 1));
        SmallVector<Value> next = compute(
            step, getStage(read), loaded.take_front(operands.size()), carried);
        next.append({getNext(read), getNext(filled)});
        llvm::append_range(next, nextOperands);
        llvm::append_range(next, sources);
        return next;
      });
  last.truncate(numCarried);
  return last;
}

//===----------------------------------------------------------------------===//
// BarrierPipeline
//===----------------------------------------------------------------------===//

BarrierPipeline::BarrierPipeline(BlockBuilder &b, int64_t stages, int64_t bytes,
                                 int64_t blocks)
    : b(b), stages(stages), bytes(bytes), blocks(blocks),
      begin(getAlignedBegin(b)), barriers(b.add(begin, stages * bytes)) {}

int64_t BarrierPipeline::getSharedBytes(int64_t stages, int64_t bytes) {
  return stages * (bytes + 2 * barrierBytes) + swizzlePeriod;
}

int64_t BarrierPipeline::getStages(int64_t sharedLimit, int64_t bytes,
                                   int64_t most) {
  int64_t rest =
      sharedLimit - BlockBuilder::sharedSymbolBytes - getSharedBytes(0, bytes);
  return std::min(most, rest / (bytes + 2 * barrierBytes));
}

void BarrierPipeline::split(int64_t consumers, Value isProducer,
                            llvm::function_ref<void()> consume,
                            llvm::function_ref<void()> produce) {
  int64_t readers = blocks * consumers / BlockBuilder::warpThreads;
  b.when(b.equal(b.thread, b.constant(0)), [&] {
    for (int64_t number = 0; number != stages; ++number) {
      Stage stage{b.constant(number), Value()};
      initBarrier(b, getFull(stage), /*arrivals=*/1);
      initBarrier(b, getEmpty(stage), readers);
    }
    publishBarriers(b);
  });
  waitForAll();
  b.when(b.less(b.thread, b.constant(consumers)), consume);
  b.when(isProducer, produce);
  // Others copy to this thread block, and arrive at its mbarriers.
  waitForAll();
}

void BarrierPipeline::waitForAll() {
  if (blocks == 1)
    b.barrier();
  else
    waitForCluster(b);
}

BarrierPipeline::Stage BarrierPipeline::getFirst() {
  return {b.constant(0), b.constant(0)};
}

BarrierPipeline::Stage BarrierPipeline::getNext(Stage stage) {
  Value next = b.add(stage.number, 1);
  Value isLast = b.equal(next, b.constant(stages));
  Value other = b.sub(b.constant(1), stage.parity);
  return {b.select(isLast, b.constant(0), next),
          b.select(isLast, other, stage.parity)};
}

Value BarrierPipeline::getBegin(Stage stage) {
  return b.multiplyAdd(stage.number, bytes, begin);
}

Value BarrierPipeline::getFull(Stage stage) {
  return b.at(b.multiplyAdd(stage.number, barrierBytes, barriers));
}

Value BarrierPipeline::getEmpty(Stage stage) {
  return b.at(b.add(b.multiplyAdd(stage.number, barrierBytes, barriers),
                    barrierBytes * stages));
}

void BarrierPipeline::waitForEmpty(Stage stage) {
  waitForPhase(b, getEmpty(stage), b.sub(b.constant(1), stage.parity));
}

void BarrierPipeline::release(Stage stage) {
  Value barrier = getEmpty(stage);
  // Each of the first lanes arrives at the barrier of one thread block.
  b.when(b.less(b.lane, b.constant(blocks)),
         [&] { arriveAt(b, barrier, b.lane); });
}

SmallVector<Value> BarrierPipeline::forSteps(
    StepRange steps, Stage &stage, ValueRange carried, LoadStep load,
    llvm::function_ref<SmallVector<Value>(Value, Stage, ValueRange, ValueRange)>
        body) {
  SmallVector<Value> all(carried);
  llvm::append_range(all, load(steps.low));
  all.append({stage.number, stage.parity});
  SmallVector<Value> last =
      b.loop(steps.low, steps.high, 1, all, [&](Value step, ValueRange all) {
        Stage stage{all.drop_back().back(), all.back()};
        SmallVector<Value> loaded = load(b.add(step, 1));
        SmallVector<Value> result =
            body(step, stage, all.drop_back(2).drop_front(carried.size()),
                 all.take_front(carried.size()));
        Stage next = getNext(stage);
        llvm::append_range(result, loaded);
        result.append({next.number, next.parity});
        return result;
      });
  stage.parity = last.pop_back_val();
  stage.number = last.pop_back_val();
  last.truncate(carried.size());
  return last;
}

void BarrierPipeline::produce(StepRange steps, Stage &stage, Copy copy,
                              LoadStep loadSources, Prepare prepare) {
  forSteps(steps, stage, /*carried=*/{}, loadSources,
           [&](Value step, Stage stage, ValueRange sources, ValueRange) {
             prepare(sources);
             waitForEmpty(stage);
             copy(step, stage, sources);
             return SmallVector<Value>();
           });
}

SmallVector<Value> BarrierPipeline::consume(StepRange steps, Stage &stage,
                                            ValueRange carried, Compute compute,
                                            LoadStep loadOperands) {
  return forSteps(
      steps, stage, carried, loadOperands,
      [&](Value step, Stage stage, ValueRange operands, ValueRange carried) {
        waitForPhase(b, getFull(stage), stage.parity);
        SmallVector<Value> result =
            compute(step, getBegin(stage), operands, carried);
        release(stage);
        return result;
      });
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mainloops whose operands are copied to shared memory some steps ahead.
// Nothing else waits for copies: a kernel says what a step copies and computes.

#ifndef BSR_CODEGEN_GPU_CORE_PIPELINE_H
#define BSR_CODEGEN_GPU_CORE_PIPELINE_H

#include "bsr/Codegen/GPU/Core/BlockBuilder.h"

namespace mlir::bsr::gpu {

/// The steps of a mainloop, from `low` to below `high`.
struct StepRange {
  Value low, high;
};

/// Loads what a step depends on, such as which block it copies: an iteration
/// earlier, so that nothing waits for it. Steps may be beyond the last one.
using LoadStep = llvm::function_ref<SmallVector<Value>(Value step)>;

/// A mainloop in which all threads of a block copy (`cp.async`) and compute: a
/// ring of stages, of which all but one are being filled while one is read.
class CopyPipeline {
public:
  /// Begins the copies of `step` to the stage at `stage`, in bytes of shared
  /// memory, with what was loaded for it.
  using Copy =
      llvm::function_ref<void(Value step, Value stage, ValueRange sources)>;
  /// Computes with the stage at `stage` and what was loaded for the step;
  /// returns what is carried on.
  using Compute = llvm::function_ref<SmallVector<Value>(
      Value step, Value stage, ValueRange operands, ValueRange carried)>;

  /// `stages` stages of `bytes` each, `first` bytes into shared memory.
  CopyPipeline(BlockBuilder &b, int64_t stages, int64_t bytes,
               Value first = Value())
      : b(b), stages(stages), bytes(bytes), first(first) {}

  /// The most stages, up to `most`, that fit in what a thread block of a
  /// chip may have, `sharedLimit`.
  static int64_t getStages(int64_t sharedLimit, int64_t bytes, int64_t most) {
    return std::min(most,
                    (sharedLimit - BlockBuilder::sharedSymbolBytes) / bytes);
  }

  /// Goes through `steps`; `begin` returns what the first one is handed, when
  /// copies are under way.
  SmallVector<Value> run(StepRange steps, Copy copy,
                         llvm::function_ref<SmallVector<Value>()> begin,
                         Compute compute, LoadStep loadSources = loadNothing,
                         LoadStep loadOperands = loadNothing);

  /// Copies that were begun in front of `run` are not of a step. `begin` may
  /// wait until all threads see them.
  void separateCopies() { b.commitCopies(); }
  void waitForSeparateCopies();

  static SmallVector<Value> loadNothing(Value) { return {}; }

private:
  int64_t getAhead() const { return stages - 1; }
  void copyStep(StepRange steps, Value step, Value offset, ValueRange sources,
                Copy copy);
  Value getNext(Value offset);
  Value getStage(Value offset) { return first ? b.add(first, offset) : offset; }

  BlockBuilder &b;
  int64_t stages, bytes;
  Value first;
};

/// A mainloop in which some threads copy, by tensor copies, and others compute.
/// Stages follow each other in shared memory, from a multiple of
/// `swizzlePeriod` on, and have two mbarriers each: its phases end when the
/// stage is full, and when it is empty, that is when all that it was copied to
/// have read it.
class BarrierPipeline {
public:
  /// A stage, and the parity of the phases of its mbarriers.
  struct Stage {
    Value number, parity;
  };
  /// Begins the copies of `step` to a stage that is empty, with what was loaded
  /// for it.
  using Copy = llvm::function_ref<void(Value step, Stage, ValueRange sources)>;
  /// Computes what `copy` is going to need of what was loaded, while the stage
  /// may still be read.
  using Prepare = llvm::function_ref<void(ValueRange sources)>;
  /// `begin` is where the stage begins, in bytes of shared memory.
  using Compute = llvm::function_ref<SmallVector<Value>(
      Value step, Value begin, ValueRange operands, ValueRange carried)>;

  /// The first `blocks` thread blocks of a cluster copy to this one.
  BarrierPipeline(BlockBuilder &b, int64_t stages, int64_t bytes,
                  int64_t blocks);

  /// Bytes of shared memory, with mbarriers and what aligns stages.
  static int64_t getSharedBytes(int64_t stages, int64_t bytes);
  /// As that of a CopyPipeline.
  static int64_t getStages(int64_t sharedLimit, int64_t bytes, int64_t most);

  /// Calls `consume` for the first `consumers` threads and `produce` for those
  /// for which `isProducer` holds. A stage is empty after one arrival of each
  /// warp that consumes, of all thread blocks of the cluster.
  void split(int64_t consumers, Value isProducer,
             llvm::function_ref<void()> consume,
             llvm::function_ref<void()> produce);

  Stage getFirst();
  /// In threads that copy: goes through `steps` from `stage` on, which becomes
  /// the one behind the last. `copy` is called once its stage is empty.
  void produce(StepRange steps, Stage &stage, Copy copy,
               LoadStep loadSources = CopyPipeline::loadNothing,
               Prepare prepare = prepareNothing);
  /// In warps that compute: goes through `steps` from `stage` on, which becomes
  /// the one behind the last.
  SmallVector<Value> consume(StepRange steps, Stage &stage, ValueRange carried,
                             Compute compute,
                             LoadStep loadOperands = CopyPipeline::loadNothing);

  /// Where `stage` begins, in bytes of shared memory.
  Value getBegin(Stage stage);
  /// The mbarrier that counts the bytes that are copied to `stage`.
  Value getFull(Stage stage);

private:
  static constexpr int64_t barrierBytes = 8;

  static void prepareNothing(ValueRange) {}
  Value getEmpty(Stage stage);
  /// Waits until `stage` is empty, before it is copied to; the first time, it
  /// is.
  void waitForEmpty(Stage stage);
  Stage getNext(Stage stage);
  void waitForAll();
  /// Releases `stage`, which the warp has read, to the blocks that copy to it.
  void release(Stage stage);
  /// Calls `body` for all steps, each with its stage and what was loaded for
  /// it.
  SmallVector<Value>
  forSteps(StepRange steps, Stage &stage, ValueRange carried, LoadStep load,
           llvm::function_ref<SmallVector<Value>(
               Value step, Stage stage, ValueRange loaded, ValueRange carried)>
               body);

  BlockBuilder &b;
  int64_t stages, bytes, blocks;
  /// Where stages begin, and mbarriers: first those of full stages.
  Value begin, barriers;
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_PIPELINE_H

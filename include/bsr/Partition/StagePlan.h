// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which devices compute which parts of a step, and how long a step takes there.
//
// The search is that of RaNNC (Tanaka et al., "Automatic Graph Partitioning for
// Very Large-scale Deep Learning", IPDPS 2021): parts that are not cut, blocks
// of them of about one time, and dynamic programming over stages, replicas and
// micro-batches under a limit of memory. Its times are predicted here.

#ifndef BSR_PARTITION_STAGEPLAN_H
#define BSR_PARTITION_STAGEPLAN_H

#include "bsr/Partition/StepParts.h"

namespace mlir::bsr {

/// The order of the micro-batches of a stage: all forward before all backward
/// (Huang et al. 2019), or one forward, one backward once the pipeline is full
/// (Narayanan et al. 2019), which keeps the activations of fewer.
enum class Schedule { GPipe, OneForwardOneBackward };

/// Equal devices, each of which is linked to each.
struct Devices {
  int64_t count = 1;
  double memory = 0;          ///< bytes of each
  double flops = 0;           ///< operations a second that products reach
  double memoryBandwidth = 0; ///< bytes a second of its memory; 0: no limit
  double bandwidth = 0;       ///< bytes a second from one to another
  double latency = 0;         ///< seconds of a message
  int64_t batch = 1;          ///< samples of a training step
  Schedule schedule = Schedule::OneForwardOneBackward;
};

/// Parts that follow each other, which one stage computes. Seconds and bytes
/// are those of a sample.
struct StageBlock {
  unsigned begin = 0, end = 0; ///< parts
  double forward = 0, backward = 0;
  double savedBytes = 0;
  double stateBytes = 0, gradientBytes = 0; ///< not of a sample
};

/// Blocks with what passes between them.
struct StageChain {
  SmallVector<StageBlock> blocks;
  SmallVector<StepCut> cuts;
  SmallVector<SharedState> shared; ///< by blocks
  bool accumulates = false;
};

/// A chain with a block for each part of `step`, on `devices`: an operation
/// takes as long as its arithmetic or its bytes, whichever is longer.
StageChain getChain(const StepParts &step, const Devices &devices);

/// Merges blocks until there are `count` at most: of neighbours that do not
/// exceed the mean time of a block together, those between which most passes;
/// if there are none, those that take the least time together.
StageChain mergeBlocks(StageChain chain, unsigned count);

/// A stage: blocks `begin` to `end`, computed by `replicas` devices, which
/// share each micro-batch.
struct Stage {
  unsigned begin = 0, end = 0;
  int64_t replicas = 1;
};

/// What a stage takes of each of its devices.
struct StageCost {
  /// Seconds of a micro-batch, each with what it sends and receives; seconds at
  /// the end of a step: means of gradients, and updates.
  double forward = 0, backward = 0, end = 0;
  /// Bytes of memory: state, gradients, activations of the micro-batches that
  /// are under way.
  double stateBytes = 0, gradientBytes = 0, activationBytes = 0;
  /// Bytes that it sends in a step: to other stages, and for means.
  double sentBytes = 0, reducedBytes = 0;

  double getMemory() const {
    return stateBytes + gradientBytes + activationBytes;
  }
};

/// The cost of `stage`, with `behind` stages after it and `microBatches` of a
/// training step.
StageCost getCost(const StageChain &chain, const Devices &devices, Stage stage,
                  int64_t microBatches, unsigned behind);

/// An estimate of the seconds of a step: those of all micro-batches and of
/// filling and emptying the pipeline, if each stage took as long as `cost`,
/// with an equal share of what a step ends with in each micro-batch. The search
/// minimizes that of the longest stage; how long a step takes, `simulate`
/// predicts.
double getEstimate(const StageCost &cost, int64_t microBatches,
                   unsigned stages);

/// Stages in the order of the forward part.
struct StagePlan {
  SmallVector<Stage> stages;
  int64_t microBatches = 1;
  double estimate = 0; ///< see `getEstimate`
};

/// What a plan is to have, rather than what the search finds best; 0: any.
struct PlanShape {
  int64_t stages = 0;
  int64_t replicas = 0; ///< of each stage
  int64_t microBatches = 0;
};

/// The plan of this shape with the least estimate, or nothing if none fits into
/// memory.
std::optional<StagePlan> planStages(const StageChain &chain,
                                    const Devices &devices,
                                    PlanShape shape = {});

/// Where `stages` stages of the blocks of `chain` end, so that the longest
/// takes least time on one device; of equal ones the one between whose stages
/// least passes. There are as many blocks at least.
SmallVector<unsigned> cutChain(const StageChain &chain, unsigned stages);

/// The forward or backward pass of a micro-batch on a stage.
struct StageTask {
  int64_t microBatch;
  bool isForward;
};

/// The tasks of stage `stage` of `stages`, in their order.
SmallVector<StageTask> getTasks(unsigned stage, unsigned stages,
                                int64_t microBatches, Schedule schedule);

/// A task from when to when, in seconds.
struct ScheduledTask {
  double begin, end;
  int64_t microBatch;
  bool isForward;
};

/// A training step as its schedule runs.
struct Timeline {
  SmallVector<SmallVector<ScheduledTask>> stages;
  /// Until the last stage is done, with its reductions and updates.
  double seconds = 0;
  /// The share of the time of devices, until the last micro-batch is done, in
  /// which they wait.
  double bubbles = 0;
};
Timeline simulate(ArrayRef<StageCost> costs, int64_t microBatches,
                  Schedule schedule);

} // namespace mlir::bsr

#endif // BSR_PARTITION_STAGEPLAN_H

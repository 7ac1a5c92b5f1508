// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pipelines: what is run of the passes, in which order.

#ifndef BSR_PIPELINES_PIPELINES_H
#define BSR_PIPELINES_PIPELINES_H

#include "bsr/Transforms/Import/Passes.h"
#include "bsr/Transforms/Parallel/Passes.h"
#include "bsr/Transforms/Sparsity/Passes.h"
#include "mlir/Pass/PassOptions.h"

namespace mlir::bsr {

/// Options of the `bsr-to-llvm` pipeline.
struct ToLLVMOptions : PassPipelineOptions<ToLLVMOptions> {
  Option<std::string> targetCpu{*this, "target-cpu",
                                llvm::cl::desc("See `bsr-embed-manifest`"),
                                llvm::cl::init("generic")};
  Option<bool> timers{*this, "timers",
                      llvm::cl::desc("Run `bsr-time-launches`"),
                      llvm::cl::init(false)};
};

/// Adds the passes that take a step whose work is in kernels to the LLVM
/// dialect.
void buildToLLVMPipeline(OpPassManager &pm, const ToLLVMOptions &options);

/// What pipelines that lower a marked step have in common; each option is that
/// of the pass it names.
struct StepOptions {
  using PassOptions = ::mlir::detail::PassOptions;
  explicit StepOptions(PassOptions &parent) : parent(parent) {}

  PassOptions &parent;
  PassOptions::Option<uint64_t> maxOperations{
      parent, "max-operations", llvm::cl::desc("See `bsr-unroll`"),
      llvm::cl::init(BSRUnrollOptions().maxOperations)};
  PassOptions::Option<bool> dropUpdates{
      parent, "drop-updates", llvm::cl::desc("Run `bsr-drop-updates`"),
      llvm::cl::init(false)};
  PassOptions::Option<bool> requireSparse{
      parent, "require-sparse",
      llvm::cl::desc("See `bsr-propagate` and `bsr-find-attention`"),
      llvm::cl::init(BSRPropagateOptions().requireSparse)};
  PassOptions::Option<bool> report{
      parent, "report",
      llvm::cl::desc(
          "See `bsr-propagate`, `bsr-layout` and `bsr-find-attention`"),
      llvm::cl::init(BSRPropagateOptions().report)};
  PassOptions::Option<bool> blockSteps{parent, "block-steps",
                                       llvm::cl::desc("Run `bsr-count-blocks`"),
                                       llvm::cl::init(false)};
  PassOptions::Option<int64_t> blockRamp{
      parent, "block-ramp",
      llvm::cl::desc("Run `bsr-ramp-blocks` over as many steps"),
      llvm::cl::init(0)};
  PassOptions::Option<std::string> scoreNorm{
      parent, "score-norm",
      llvm::cl::desc("Run `bsr-score-blocks` with this norm"),
      llvm::cl::init("")};
  PassOptions::Option<bool> attention{
      parent, "find-attention", llvm::cl::desc("Run `bsr-find-attention`"),
      llvm::cl::init(true)};
  PassOptions::Option<int64_t> attentionKeys{
      parent, "attention-keys",
      llvm::cl::desc("See `min-keys` of `bsr-find-attention` (for GPUs 1)"),
      llvm::cl::init(256)};
  PassOptions::ListOption<std::string> attentionMarks{
      parent, "attention-marks",
      llvm::cl::desc("See `marks` of `bsr-find-attention`")};
  PassOptions::Option<bool> dataParallel{
      parent, "data-parallel", llvm::cl::desc("Run `bsr-data-parallel`"),
      llvm::cl::init(false)};
  PassOptions::Option<int64_t> shardState{
      parent, "shard-state",
      llvm::cl::desc("Run `bsr-shard-state` with as many processes"),
      llvm::cl::init(0)};
  PassOptions::Option<unsigned> stages{
      parent, "stages",
      llvm::cl::desc("Run `bsr-split-stages` with as many stages"),
      llvm::cl::init(0)};
  PassOptions::Option<unsigned> stage{parent, "stage",
                                      llvm::cl::desc("See `bsr-split-stages`"),
                                      llvm::cl::init(0)};
  PassOptions::Option<int64_t> microBatches{
      parent, "micro-batches",
      llvm::cl::desc("Run `bsr-micro-batches` with as many"),
      llvm::cl::init(1)};
  PassOptions::Option<std::string> schedule{
      parent, "schedule", llvm::cl::desc("See `bsr-micro-batches`"),
      llvm::cl::init(BSRMicroBatchesOptions().schedule)};
  PassOptions::Option<std::string> target{
      parent, "target", llvm::cl::desc("See `bsr-set-target`"),
      llvm::cl::init("")};
};

/// Options of the `bsr-to-sparse` pipeline.
struct ToSparseOptions : PassPipelineOptions<ToSparseOptions> {
  StepOptions step{*this};
};

/// Adds the passes after which the marked weights of a step are patterns and
/// values, and nothing else is rewritten: what the step means, which
/// `sparse-compile --check` interprets.
void buildToBoundPipeline(OpPassManager &pm, const ToSparseOptions &options);

/// Adds the passes after which a marked step touches only stored blocks: what
/// `sparse-partition` reads, the same for all targets.
void buildToSparsePipeline(OpPassManager &pm, const ToSparseOptions &options);

/// Options of the `bsr-to-cpu` pipeline.
struct ToCPUOptions : ToLLVMOptions {
  StepOptions step{*this};
};

/// Adds the passes that take a step as the front ends write it, marked, to
/// launches of clusters, which say what of their buffers is cut in panels:
/// where `sparse-compile --tune` measures how kernels may go through products.
void buildToClustersPipeline(OpPassManager &pm, const ToCPUOptions &options);

/// Adds the passes that take such launches to the LLVM dialect.
void buildClustersToLLVMPipeline(OpPassManager &pm,
                                 const ToLLVMOptions &options);

/// Adds the passes of both.
void buildToCPUPipeline(OpPassManager &pm, const ToCPUOptions &options);

/// Options of the `bsr-to-gpu` pipeline.
struct ToGPUOptions : PassPipelineOptions<ToGPUOptions> {
  /// Attention is found however few keys it is to, unless an option says
  /// otherwise.
  ToGPUOptions() { step.attentionKeys = 1; }
  StepOptions step{*this};
};

/// Adds the passes that take such a step to launches of kernels in PTX. Its
/// target is `#bsr.gpu` if neither the module nor an option says another chip.
void buildToGPUPipeline(OpPassManager &pm, const ToGPUOptions &options);

struct LaunchesToLLVMOptions : PassPipelineOptions<LaunchesToLLVMOptions> {
  Option<bool> timers{*this, "timers",
                      llvm::cl::desc("Measure the time of each kernel")};
};

/// Adds the passes that take launches of kernels in PTX to the LLVM dialect:
/// data that the runtime launches them by.
void buildLaunchesToLLVMPipeline(OpPassManager &pm,
                                 const LaunchesToLLVMOptions &options);

/// Adds the dialect with what passes and tools need to know of its operations
/// and targets.
void registerDialect(DialectRegistry &registry);

/// Registers every pass and the named pipelines.
void registerPassesAndPipelines();

} // namespace mlir::bsr

#endif // BSR_PIPELINES_PIPELINES_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pipelines: what is run of the passes, in which order.

#ifndef BSR_PIPELINES_PIPELINES_H
#define BSR_PIPELINES_PIPELINES_H

#include "bsr/Transforms/Import/Passes.h"
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

/// Options of the `bsr-to-cpu` pipeline; each is that of the pass it names.
struct ToCPUOptions : ToLLVMOptions {
  Option<uint64_t> maxOperations{
      *this, "max-operations", llvm::cl::desc("See `bsr-unroll`"),
      llvm::cl::init(BSRUnrollOptions().maxOperations)};
  Option<bool> requireSparse{
      *this, "require-sparse", llvm::cl::desc("See `bsr-propagate`"),
      llvm::cl::init(BSRPropagateOptions().requireSparse)};
  Option<bool> report{*this, "report",
                      llvm::cl::desc("See `bsr-propagate` and `bsr-layout`"),
                      llvm::cl::init(BSRPropagateOptions().report)};
  Option<std::string> scoreNorm{
      *this, "score-norm",
      llvm::cl::desc("Run `bsr-score-blocks` with this norm"),
      llvm::cl::init("")};
  Option<std::string> target{*this, "target",
                             llvm::cl::desc("See `bsr-set-target`"),
                             llvm::cl::init("")};
};

/// Adds the passes that take a step as the front doors write it, marked, to the
/// LLVM dialect.
void buildToCPUPipeline(OpPassManager &pm, const ToCPUOptions &options);

/// Adds the dialect with what passes and tools need to know of its operations
/// and targets.
void registerDialect(DialectRegistry &registry);

/// Registers every pass and the named pipelines.
void registerPassesAndPipelines();

} // namespace mlir::bsr

#endif // BSR_PIPELINES_PIPELINES_H

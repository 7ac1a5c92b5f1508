// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What sparse-compile does for processors and for GPUs alike.

#include "Phases.h"
#include "../StepFile.h"
#include "Output.h"
#include "PassTimes.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::bsr;
using llvm::createStringError;
using llvm::Error;
using llvm::formatv;

void Stopwatch::lap(StringRef phase) {
  auto now = std::chrono::steady_clock::now();
  std::chrono::duration<double> seconds = now - last;
  last = now;
  if (isOn)
    llvm::errs() << llvm::formatv("{0,8:f2} s  {1}\n", seconds.count(), phase);
}

std::string bsr::print(Attribute attribute) {
  std::string text;
  llvm::raw_string_ostream(text) << attribute;
  return text;
}

Error bsr::verifyStages(const CommandLine &options) {
  bool hasStages = options.stages.getNumOccurrences();
  if (hasStages != bool(options.stage.getNumOccurrences()))
    return createStringError(
        hasStages ? "expected --stage=K beside --stages, the one "
                    "to compile, but got none"
                  : "expected --stages=N beside --stage, but "
                    "got none");
  if (hasStages && (options.stages < 2 || options.stage >= options.stages))
    return createStringError(
        formatv("expected --stages of 2 or more and --stage of one of them, "
                "counted from 0, but got stage {0} of {1}",
                options.stage.getValue(), options.stages.getValue())
            .str());
  if (options.microBatches < 1)
    return createStringError(
        formatv("expected --micro-batches of 1 or more, but got {0}",
                options.microBatches.getValue())
            .str());
  if (options.schedule != "gpipe" && options.schedule != "1f1b")
    return createStringError("expected --schedule=gpipe or --schedule=1f1b, "
                             "but got " +
                             options.schedule);
  if (options.shardState.getNumOccurrences() &&
      (options.shardState < 2 || !options.dataParallel))
    return createStringError(
        formatv("expected --shard-state of 2 or more processes beside "
                "--data-parallel, but got {0}{1}",
                options.shardState.getValue(),
                options.dataParallel ? "" : " without it")
            .str());
  return Error::success();
}

bool bsr::isOfAttention(StringRef mark) {
  return mark.ltrim().starts_with("attention=");
}

void bsr::setStepOptions(StepOptions &step, const CommandLine &options) {
  step.report = options.report.getValue();
  step.dropUpdates = options.dropUpdates.getValue();
  step.requireSparse = options.requireSparse.getValue();
  step.attention = options.attention.getValue();
  if (options.attentionKeys.getNumOccurrences())
    step.attentionKeys = options.attentionKeys.getValue();
  for (const std::string &mark : options.marks)
    if (isOfAttention(mark))
      step.attentionMarks.push_back(mark);
  step.blockSteps = options.blockSteps.getValue();
  step.blockRamp = options.blockRamp.getValue();
  step.scoreNorm = options.scoreNorm.getValue();
  step.dataParallel = options.dataParallel.getValue();
  step.shardState = options.shardState.getValue();
  step.stages = options.stages.getValue();
  step.stage = options.stage.getValue();
  step.microBatches = options.microBatches.getValue();
  step.schedule = options.schedule.getValue();
  step.maxOperations = options.maxOperations.getValue();
}

Error bsr::run(PassManager &pm, ModuleOp module, const CommandLine &options) {
  // To verify after each pass takes most of the time; sparse-opt does, and the
  // tests run the same pipelines by it. Here the ends of stages are verified,
  // by bsr-verify-module, and what comes out.
  pm.enableVerifier(options.verifyEach);
  if (failed(pm.run(module)) || failed(verify(module)))
    return createStringError(
        "expected the step to compile, but got the errors above");
  return Error::success();
}

Error bsr::lower(ModuleOp module, const CommandLine &options,
                 llvm::function_ref<void(OpPassManager &)> build) {
  if (options.passTimes)
    module.getContext()->disableMultithreading();
  PassManager pm(module.getContext());
  if (options.passTimes)
    pm.addInstrumentation(std::make_unique<PassTimes>());
  for (const std::string &mark : options.marks) {
    if (isOfAttention(mark))
      continue;
    if (Error error = tools::addMark(pm, mark))
      return error;
  }
  build(pm);
  return run(pm, module, options);
}

Error bsr::writeModule(ModuleOp module, StringRef path) {
  return writeFile(path, [&](llvm::raw_pwrite_stream &os) -> Error {
    module->print(os);
    return Error::success();
  });
}

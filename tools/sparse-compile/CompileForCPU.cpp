// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a step for processors.

#include "../Version.h"
#include "Check.h"
#include "Codegen.h"
#include "Compile.h"
#include "EmitCode.h"
#include "Linker.h"
#include "Memory.h"
#include "Tune.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::bsr;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;

/// What the code of a step depends on beside the step and the processor.
static llvm::json::Object getCompiler(const llvm::TargetMachine &machine,
                                      const CommandLine &options,
                                      Attribute target) {
  llvm::json::Object compiler{
      {"version", llvm::formatv("sparse-compile {0}, LLVM {1}", tools::version,
                                LLVM_VERSION_STRING)
                      .str()},
      {"level", static_cast<int64_t>(options.level)},
      {"triple", machine.getTargetTriple().str()}};
  if (auto cpu = dyn_cast<CPUAttr>(target)) {
    compiler["vector_bits"] = cpu.getVectorBits();
    compiler["num_registers"] = cpu.getNumRegisters();
    compiler["l1_bytes"] = cpu.getL1Bytes();
    compiler["l2_bytes"] = cpu.getL2Bytes();
    compiler["bf16_dots"] = stringifyPairDots(cpu.getBf16Dots());
    compiler["bf16_tiles"] = stringifyTileProducts(cpu.getBf16Tiles());
  } else {
    compiler["target"] = "scalar";
  }
  return compiler;
}

/// Prints what the manifest of `step` says about memory and products.
static void printReport(const llvm::json::Object &step) {
  const llvm::json::Object &products = *step.getObject("products");
  const llvm::json::Object &kernels = *step.getObject("kernels");
  auto mebibytes = [&](StringRef name) {
    return *step.getInteger(name) / 1048576.0;
  };
  llvm::errs() << llvm::formatv(
      "buffers           {0}\n"
      "patterns          {1}\n"
      "arena             {2:f1} MiB; {3:f1} MiB live at once\n"
      "kernels           {4}; {5} launches\n"
      "sparse products   {6} forward, {7} transposed, {8} sampled\n"
      "dense products    {9}\n"
      "left dense        {10}\n",
      step.getArray("buffers")->size(), step.getArray("patterns")->size(),
      mebibytes("arena_bytes"), mebibytes("live_bytes"),
      *kernels.getInteger("functions"), *kernels.getInteger("launches"),
      *products.getInteger("spmm"), *products.getInteger("spmm_transposed"),
      *products.getInteger("sddmm"), *products.getInteger("dense"),
      *step.getInteger("left_dense"));
}

Error bsr::compileForCPU(OwningOpRef<ModuleOp> module, Attribute target,
                         llvm::TargetMachine &machine,
                         const CommandLine &options, Stopwatch &watch) {
  if (options.emit == Emit::PTX)
    return createStringError("expected --emit=ptx for a GPU, such as "
                             "--target=sm_90a, but got it for " +
                             print(target));
  if (options.check && isForeign(machine))
    return createStringError("expected --check of a step for this machine, "
                             "which runs it, but got one for " +
                             machine.getTargetTriple().str());
  if (options.emit == Emit::Library)
    if (Error error = findLibraries(machine, options).takeError())
      return error;
  ToCPUOptions pipeline;
  setStepOptions(pipeline.step, options);
  pipeline.targetCpu = machine.getTargetCPU().str();
  pipeline.timers = options.timers.getValue();
  std::optional<StepCheck> check;
  if (options.check) {
    Expected<StepCheck> created = StepCheck::create(*module, options);
    if (!created)
      return created.takeError();
    check = std::move(*created);
  }
  bool tunes = options.tune.getNumOccurrences();
  if (Error error = lower(*module, options, [&](OpPassManager &pm) {
        if (tunes)
          buildToClustersPipeline(pm, pipeline);
        else
          buildToCPUPipeline(pm, pipeline);
      }))
    return error;
  if (tunes) {
    watch.lap("lower");
    if (Error error = tune(*module, machine,
                           getCompiler(machine, options, target), options))
      return error;
    watch.lap("tune");
    PassManager pm(module->getContext());
    buildClustersToLLVMPipeline(pm, pipeline);
    if (Error error = run(pm, *module, options))
      return error;
  }
  watch.lap("lower");
  llvm::json::Object manifest = getManifest(*module);
  if (options.report)
    printReport(manifest);
  if (Error error = verifyMemory(manifest, options))
    return error;
  if (options.emit == Emit::MLIR)
    return writeModule(*module, options.output);

  std::vector<StringRef> features = getRequiredFeatures(machine, *module);
  return emitCode(std::move(module), machine,
                  getCompiler(machine, options, target), features, options,
                  watch, [&](StringRef library) {
                    return check ? check->run(library) : Error::success();
                  });
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a step to kernels for GPUs, and predicts how long they take.

#include "../Version.h"
#include "Assembler.h"
#include "Compile.h"
#include "EmitCode.h"
#include "Memory.h"
#include "Output.h"
#include "bsr/Codegen/GPU/Prediction/PredictKernels.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/WithColor.h"
#include <cmath>

namespace cl = llvm::cl;
using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;

/// What to write for a GPU: what `--emit` says, or else what the output's name
/// ends in, or else a library.
static Emit getEmitForGPU(const CommandLine &options) {
  StringRef output = options.output;
  if (options.emit.getNumOccurrences())
    return options.emit;
  if (output.ends_with(".ptx"))
    return Emit::PTX;
  return output.ends_with(".mlir") ? Emit::MLIR : Emit::Library;
}

/// What the kernels of a step for `target` depend on beside the step.
static llvm::json::Object getCompiler(GPUAttr target, bool hasCubin) {
  llvm::json::Object compiler{
      {"version", llvm::formatv("sparse-compile {0}, LLVM {1}", tools::version,
                                LLVM_VERSION_STRING)
                      .str()},
      {"target", print(target)}};
  if (hasCubin)
    compiler["cubin"] = true;
  return compiler;
}

/// Refuses option `given` if it is there and not `isValid`, which is `range`.
static Error verify(const cl::opt<double> &given, bool isValid,
                    StringRef range) {
  if (!given.getNumOccurrences() || isValid)
    return Error::success();
  return createStringError(
      llvm::formatv("expected --{0} to be {1}, but got {2}", given.ArgStr,
                    range, given.getValue()));
}

/// What the model of a GPU takes from the command line.
static Expected<ModelParameters>
getModelParameters(const CommandLine &options) {
  double overlap = options.overlap;
  for (const auto *rate : {&options.mmaRate, &options.wgmmaRate})
    if (Error error =
            verify(*rate, *rate > 0 && *rate <= 1, "above 0, at most 1"))
      return error;
  if (Error error =
          verify(options.overlap, overlap >= 0 && overlap <= 1, "0 to 1"))
    return error;
  for (const auto *bandwidth : {&options.l2Bandwidth, &options.memoryBandwidth})
    if (Error error = verify(
            *bandwidth, *bandwidth > 0 && std::isfinite(*bandwidth), "above 0"))
      return error;
  double launchTime = options.launchTime;
  if (Error error =
          verify(options.launchTime,
                 launchTime >= 0 && std::isfinite(launchTime), "0 or above"))
    return error;
  auto get = [](const cl::opt<double> &option) {
    return option.getNumOccurrences() ? std::optional<double>(option.getValue())
                                      : std::nullopt;
  };
  ModelParameters parameters;
  parameters.mmaRate = get(options.mmaRate);
  parameters.wgmmaRate = get(options.wgmmaRate);
  parameters.l2Bandwidth = get(options.l2Bandwidth);
  parameters.memoryBandwidth = get(options.memoryBandwidth);
  if (std::optional<double> given = get(options.launchTime))
    parameters.launchSeconds = *given * 1e-6;
  parameters.overlap = get(options.overlap).value_or(parameters.overlap);
  return parameters;
}

/// Takes how long it took to make kernels out of `module`: the same step
/// compiles to the same bytes.
static void dropTimes(ModuleOp module) {
  for (auto binary : module.getOps<mlir::gpu::BinaryOp>())
    binary.setObjectsAttr(Builder(module).getArrayAttr(llvm::map_to_vector(
        binary.getObjects(), [](Attribute attribute) -> Attribute {
          auto object = cast<mlir::gpu::ObjectAttr>(attribute);
          NamedAttrList properties(object.getProperties());
          for (StringRef name : {"LLVMIRToISATimeInMs", "ISAToBinaryTimeInMs"})
            properties.erase(name);
          return mlir::gpu::ObjectAttr::get(
              object.getContext(), object.getTarget(), object.getFormat(),
              object.getObject(), properties.getDictionary(object.getContext()),
              object.getKernels());
        })));
}

/// What ptxas makes of the kernels of `module`; nothing, of which it warns,
/// where the tools are not installed.
static Expected<std::optional<llvm::StringMap<SASSKernel>>>
assembleKernels(ModuleOp module, GPUAttr target) {
  Expected<Assembler> assembler = findAssembler();
  if (!assembler) {
    llvm::WithColor::warning(llvm::errs(), "sparse-compile")
        << llvm::toString(assembler.takeError())
        << ": instructions are those of PTX\n";
    return std::nullopt;
  }
  FailureOr<StringRef> text = getPTX(module);
  if (failed(text))
    return std::nullopt; // predictKernels says so
  auto machine = bsr::disassemble(*assembler, *text, target.getChip());
  if (!machine)
    return machine.takeError();
  return std::move(*machine);
}

/// The machine code of the kernels of `module` for a library: what `--cubin`
/// asks for, or what ptxas makes where it is installed and nothing is said of
/// it; else nothing.
static Expected<std::string> makeCubinOf(ModuleOp module, GPUAttr target,
                                         const CommandLine &options,
                                         Emit emit) {
  bool isAsked = options.cubin.getNumOccurrences();
  if (isAsked ? !options.cubin : emit != Emit::Library)
    return "";
  FailureOr<StringRef> text = getPTX(module);
  if (failed(text))
    return createStringError(
        "expected the step to have kernels, but got the error above");
  Expected<std::string> ptxas = findPtxas();
  if (!ptxas && !isAsked) {
    llvm::consumeError(ptxas.takeError());
    return "";
  }
  if (!ptxas)
    return ptxas.takeError();
  Expected<std::string> made = makeCubin(*ptxas, *text, target.getChip());
  if (made || isAsked)
    return made;
  // An older ptxas may not know the chip.
  llvm::WithColor::warning(llvm::errs(), "sparse-compile")
      << llvm::toString(made.takeError())
      << ": the GPU's driver will compile the kernels\n";
  return "";
}

/// Adds to `module`, what is left of a step, the machine code of its kernels.
static void addCubin(ModuleOp module, StringRef cubin) {
  OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
  LLVM::GlobalOp::create(
      b, module.getLoc(),
      LLVM::LLVMArrayType::get(b.getI8Type(), unsigned(cubin.size())),
      /*isConstant=*/true, LLVM::Linkage::External, "bsr_step_cubin",
      b.getStringAttr(cubin), /*alignment=*/64);
}

Error bsr::compileForGPU(OwningOpRef<ModuleOp> module, GPUAttr target,
                         llvm::TargetMachine &machine,
                         const CommandLine &options, Stopwatch &watch) {
  if (options.check)
    return createStringError("expected --check of a step for processors, which "
                             "this machine can run, but got it for " +
                             print(target));
  Expected<ModelParameters> parameters = getModelParameters(options);
  if (!parameters)
    return parameters.takeError();
  if (options.assemble && !options.report)
    return createStringError(
        "expected --print-report with --assemble, but got none");
  Emit emit = getEmitForGPU(options);
  if (options.timers && (emit == Emit::MLIR || emit == Emit::PTX))
    return createStringError("expected --timers with a library, whose kernels "
                             "the runtime times, but got --emit=" +
                             Twine(emit == Emit::PTX ? "ptx" : "mlir"));
  if (options.cubin && (emit == Emit::MLIR || emit == Emit::PTX))
    return createStringError("expected --cubin with a library, which has room "
                             "for machine code, but got --emit=" +
                             Twine(emit == Emit::PTX ? "ptx" : "mlir"));
  if (options.memory.getNumOccurrences() &&
      (emit == Emit::MLIR || emit == Emit::PTX))
    return createStringError("expected --memory with a library, whose memory "
                             "is known, but got --emit=" +
                             Twine(emit == Emit::PTX ? "ptx" : "mlir"));
  ToGPUOptions pipeline;
  setStepOptions(pipeline.step, options);
  pipeline.step.target = print(target);
  if (Error error = lower(*module, options, [&](OpPassManager &pm) {
        buildToGPUPipeline(pm, pipeline);
      }))
    return error;
  dropTimes(*module);
  watch.lap("lower");
  if (options.report) {
    std::optional<llvm::StringMap<SASSKernel>> machine;
    if (options.assemble) {
      auto made = assembleKernels(*module, target);
      if (!made)
        return made.takeError();
      machine = std::move(*made);
    }
    auto kernels =
        predictKernels(*module, *parameters, machine ? &*machine : nullptr);
    if (failed(kernels))
      return createStringError(
          "expected kernels that the model knows, but got the errors above");
    // As many as RigL prunes at first.
    auto update = predictUpdate(*module, /*share=*/0.3, *parameters);
    if (failed(update))
      return createStringError(
          "expected kernels that the model knows, but got the errors above");
    llvm::append_range(*kernels, std::move(*update));
    bsr::gpu::print(*kernels, *findChip(target.getChip()), llvm::errs());
    watch.lap("predict");
  }
  if (emit == Emit::MLIR)
    return writeModule(*module, options.output);
  if (emit != Emit::PTX) {
    PassManager pm(module->getContext());
    Expected<std::string> cubin = makeCubinOf(*module, target, options, emit);
    if (!cubin)
      return cubin.takeError();
    if (!cubin->empty())
      watch.lap("assemble");
    LaunchesToLLVMOptions launches;
    launches.timers = options.timers.getValue();
    buildLaunchesToLLVMPipeline(pm, launches);
    if (Error error = run(pm, *module, options))
      return error;
    if (Error error = verifyMemory(getManifest(*module), options))
      return error;
    if (!cubin->empty())
      addCubin(*module, *cubin);
    return emitCode(std::move(module), machine,
                    getCompiler(target, !cubin->empty()),
                    /*features=*/{}, options, watch,
                    [](StringRef) { return Error::success(); });
  }
  FailureOr<StringRef> text = getPTX(*module);
  if (failed(text))
    return createStringError(
        "expected the step to have kernels, but got the error above");
  return writeFile(options.output, [&](llvm::raw_pwrite_stream &os) -> Error {
    os << *text;
    return Error::success();
  });
}

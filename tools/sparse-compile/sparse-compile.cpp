// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a training step to a shared library, or to kernels in PTX.

#include "../Version.h"
#include "Assembler.h"
#include "Codegen.h"
#include "Identity.h"
#include "Linker.h"
#include "Output.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Codegen/GPU/PredictKernels.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Pipelines/Pipelines.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/OpenMP/OpenMPToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/WithColor.h"

#include <chrono>
#include <cmath>

namespace cl = llvm::cl;
using namespace mlir;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;

namespace {
enum class Emit { MLIR, LLVM, PTX, Object, Library };

/// What the command line says.
struct CommandLine {
  cl::OptionCategory category{"Options"};
  cl::opt<std::string> input{cl::Positional, cl::init("-"),
                             cl::desc("<step.mlir>"), cl::cat(category)};
  cl::opt<std::string> output{
      "o", cl::desc("The file to write (-: the standard output)"),
      cl::value_desc("file"), cl::Required, cl::cat(category)};
  cl::list<std::string> marks{
      "mark",
      cl::desc("Make weights block-sparse: the options of the pass bsr-mark, "
               "such as \"match=.*_w$ block=16x16 density=0.1\", or "
               "\"match=.*_w$ pattern=file.json\" for a pattern that never "
               "changes (repeatable)"),
      cl::value_desc("options"), cl::cat(category)};
  cl::opt<std::string> targetCpu{
      "target-cpu", cl::init("host"),
      cl::desc("The processor to compile for (default: host, this one)"),
      cl::value_desc("name"), cl::cat(category)};
  cl::opt<std::string> target{
      "target", cl::init("cpu"),
      cl::desc("What kernels are made for (default: cpu): cpu, the vectors, "
               "caches and cores of the processor; scalar, plain loops, one "
               "element after the other: slow, to compare with; or an NVIDIA "
               "GPU, sm_80, sm_86, sm_89, sm_90, sm_90a or sm_100a, for which "
               "no shared library is made yet: the output is the kernels, "
               "-o <file>.ptx, or the module that launches them, -o "
               "<file>.mlir"),
      cl::value_desc("name"), cl::cat(category)};
  cl::opt<int64_t> vectorBits{
      "vector-bits",
      cl::desc("Bits of the vectors that kernels are made of, instead of those "
               "of the processor's registers"),
      cl::value_desc("bits"), cl::cat(category)};
  cl::opt<int64_t> numRegisters{
      "num-registers",
      cl::desc("Vector registers that kernels are made for, instead of those "
               "of the processor"),
      cl::value_desc("number"), cl::cat(category)};
  cl::opt<int64_t> l1Bytes{
      "l1-bytes",
      cl::desc("Bytes of a core's first-level cache, instead of those of the "
               "processor"),
      cl::value_desc("bytes"), cl::cat(category)};
  cl::opt<int64_t> l2Bytes{
      "l2-bytes",
      cl::desc("Bytes of a core's second-level cache, instead of those of the "
               "processor"),
      cl::value_desc("bytes"), cl::cat(category)};
  cl::opt<double> mmaRate{
      "mma-rate",
      cl::desc("What mma.sync reaches of the tensor cores' rate, in the report "
               "for a GPU, instead of what the chip is taken to reach"),
      cl::value_desc("share"), cl::cat(category)};
  cl::opt<double> wgmmaRate{
      "wgmma-rate",
      cl::desc(
          "What wgmma reaches of the tensor cores' rate, in the report for "
          "a GPU, instead of what the chip is taken to reach"),
      cl::value_desc("share"), cl::cat(category)};
  cl::opt<double> l2Bandwidth{
      "l2-bandwidth",
      cl::desc(
          "Bytes a second that a GPU's second-level cache delivers, in the "
          "report, instead of the chip's"),
      cl::value_desc("bytes"), cl::cat(category)};
  cl::opt<double> memoryBandwidth{
      "memory-bandwidth",
      cl::desc(
          "Bytes a second of a GPU's memory, in the report, instead of the "
          "chip's"),
      cl::value_desc("bytes"), cl::cat(category)};
  cl::opt<double> overlap{
      "overlap",
      cl::desc(
          "How far a launch uses a GPU's resources at one time, in the "
          "report: 1, it takes as long as the busiest one (default); 0, as "
          "all of them one after the other"),
      cl::value_desc("share"), cl::cat(category)};
  cl::opt<unsigned> level{"O",
                          cl::Prefix,
                          cl::init(3),
                          cl::desc("Optimization level, 0 to 3 (default: 3)"),
                          cl::value_desc("level"),
                          cl::cat(category)};
  cl::opt<Emit> emit{
      "emit", cl::init(Emit::Library),
      cl::desc("What to write (default: so; for a GPU, what -o ends in)"),
      cl::values(clEnumValN(Emit::MLIR, "mlir",
                            "the LLVM dialect; for a GPU, launches of kernels"),
                 clEnumValN(Emit::LLVM, "llvm", "optimized LLVM IR"),
                 clEnumValN(Emit::PTX, "ptx", "kernels for a GPU"),
                 clEnumValN(Emit::Object, "obj", "an object file"),
                 clEnumValN(Emit::Library, "so", "a shared library")),
      cl::cat(category)};
  cl::opt<bool> report{"print-report",
                       cl::desc("Print what was made sparse and what was not; "
                                "for a GPU, how long each kernel takes at "
                                "least, as a model predicts it"),
                       cl::cat(category)};
  cl::opt<bool> assemble{
      "assemble",
      cl::desc(
          "Let the model of a GPU count instructions of the machine, which "
          "ptxas and nvdisasm make of PTX (PTXAS, NVDISASM, PATH, "
          "CUDA_HOME), and print registers and spills"),
      cl::cat(category)};
  cl::opt<bool> requireSparse{
      "require-sparse",
      cl::desc("Fail if a product with a marked weight or its gradient stays "
               "dense, or its gradient is not found, with a sentence for each"),
      cl::cat(category)};
  cl::opt<bool> tf32{
      "tf32",
      cl::desc("For a GPU, round what products of f32 read to tf32, which "
               "tensor cores multiply"),
      cl::cat(category)};
  cl::opt<bool> timers{
      "timers",
      cl::desc("Let the step measure the time of each of its kernels "
               "(sparse-train --timers prints it)"),
      cl::cat(category)};
  cl::opt<std::string> scoreNorm{
      "score-norm",
      cl::desc("Let the step compute scores of all blocks of the gradients of "
               "marked weights, when asked to, for pattern updates by gradient "
               "(RigL): norms of the blocks"),
      cl::value_desc("l1|l2|linf"), cl::cat(category)};
  cl::opt<uint64_t> maxOperations{
      "max-operations", cl::init(bsr::BSRUnrollOptions().maxOperations),
      cl::desc("The most operations that a loop over time may become (default: "
               "65536)"),
      cl::value_desc("number"), cl::cat(category)};
  cl::opt<bool> time{"time", cl::desc("Print the time of each phase"),
                     cl::cat(category)};
};

/// Prints the time since the last lap, if asked to.
class Stopwatch {
public:
  explicit Stopwatch(bool isOn) : isOn(isOn) {}

  void lap(StringRef phase) {
    auto now = std::chrono::steady_clock::now();
    std::chrono::duration<double> seconds = now - last;
    last = now;
    if (isOn)
      llvm::errs() << llvm::formatv("{0,8:f2} s  {1}\n", seconds.count(),
                                    phase);
  }

private:
  bool isOn;
  std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
};
} // namespace

/// Prints `diagnostic`, with the line of the source that it speaks of unless
/// that is long: a signature has a thousand arguments.
static void print(const llvm::SMDiagnostic &diagnostic, void *) {
  constexpr size_t longest = 200;
  if (diagnostic.getLineContents().size() <= longest)
    return diagnostic.print(/*ProgName=*/nullptr, llvm::errs());
  std::string place =
      llvm::formatv("{0}:{1}:{2}", diagnostic.getFilename(),
                    diagnostic.getLineNo(), diagnostic.getColumnNo() + 1);
  llvm::SMDiagnostic(place, diagnostic.getKind(), diagnostic.getMessage())
      .print(/*ProgName=*/nullptr, llvm::errs());
}

/// Reads and parses the step `path` (`-`: the standard input).
static Expected<OwningOpRef<ModuleOp>>
parse(StringRef path, llvm::SourceMgr &sources, MLIRContext &context) {
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(path, /*IsText=*/true);
  if (!buffer)
    return createStringError("expected to read '" + path + "', but got '" +
                             buffer.getError().message() + "'");
  sources.AddNewSourceBuffer(std::move(*buffer), SMLoc());
  auto module = parseSourceFile<ModuleOp>(sources, &context);
  FailureOr<func::FuncOp> step = failure();
  if (module)
    step = bsr::getStep(*module);
  if (failed(step) || failed(bsr::verifySignature(*step)))
    return createStringError("expected '" + path +
                             "' to be a step, but got the errors above");
  return std::move(module);
}

/// Sets the options of a pipeline that all targets have.
static void setStepOptions(bsr::StepOptions &step, const CommandLine &options) {
  step.report = options.report.getValue();
  step.requireSparse = options.requireSparse.getValue();
  step.scoreNorm = options.scoreNorm.getValue();
  step.maxOperations = options.maxOperations.getValue();
}

/// `#bsr.cpu` as `own`, what the step says it is for, or else `machine` has it,
/// and as the options say.
static Expected<Attribute> getCPU(ModuleOp module, bsr::CPUAttr own,
                                  const CommandLine &options,
                                  const llvm::TargetMachine &machine) {
  bsr::CPUAttr base = own;
  if (!own) {
    bsr::VectorUnit vectors = bsr::getVectorUnit(machine);
    bsr::CacheSizes caches = bsr::getCacheSizes(options.targetCpu == "host");
    base = bsr::CPUAttr::get(module.getContext(), vectors.bits,
                             vectors.registers, caches.first, caches.second);
  }
  auto get = [](const cl::opt<int64_t> &option, int64_t otherwise) {
    return option.getNumOccurrences() ? option.getValue() : otherwise;
  };
  auto target = bsr::CPUAttr::getChecked(
      [&] { return mlir::emitError(module.getLoc()); }, module.getContext(),
      get(options.vectorBits, base.getVectorBits()),
      get(options.numRegisters, base.getNumRegisters()),
      get(options.l1Bytes, base.getL1Bytes()),
      get(options.l2Bytes, base.getL2Bytes()));
  if (!target)
    return createStringError("expected a target, but got the errors above");
  return target;
}

/// `attribute` as its text.
static std::string print(Attribute attribute) {
  std::string text;
  llvm::raw_string_ostream(text) << attribute;
  return text;
}

/// Checks that none of `given` is on the command line: `target` has no use for
/// them.
static Error verifyAbsent(ArrayRef<const cl::Option *> given,
                          Attribute target) {
  for (const cl::Option *option : given)
    if (option->getNumOccurrences())
      return createStringError(
          llvm::Twine("expected no ") +
          (option->ArgStr.size() == 1 ? "-" : "--") + option->ArgStr +
          " for a target without it, but got one for " + print(target));
  return Error::success();
}

/// The chips of NVIDIA's that `--target` takes.
static std::string listChips() {
  auto names = llvm::map_range(
      bsr::getChips(), [](const bsr::Chip &chip) { return chip.name.str(); });
  return llvm::join(ArrayRef(llvm::to_vector(names)).drop_back(), ", ") +
         " or " + bsr::getChips().back().name.str();
}

/// What the options name as target; null for processors.
static Expected<Attribute> getNamedTarget(MLIRContext *context,
                                          const CommandLine &options) {
  if (options.target == "cpu")
    return Attribute();
  if (options.target == "scalar")
    return bsr::ScalarAttr::get(context);
  if (bsr::findChip(options.target))
    return bsr::GPUAttr::get(context, options.target, /*tileOutputs=*/0,
                             /*tileTokens=*/0, /*shareOutputs=*/0,
                             /*shareTokens=*/0, /*tf32=*/false);
  return createStringError("expected --target to be cpu, scalar, " +
                           listChips() + ", but got '" + options.target + "'");
}

/// The target of kernels: what `module` says it is for, or else what the
/// options say, which must agree.
static Expected<Attribute> getTarget(ModuleOp module,
                                     const CommandLine &options,
                                     const llvm::TargetMachine &machine) {
  Attribute own = bsr::attrs::target.get(module);
  Expected<Attribute> target = getNamedTarget(module.getContext(), options);
  if (!target)
    return target;
  if (!options.target.getNumOccurrences() &&
      isa_and_nonnull<bsr::ScalarAttr, bsr::GPUAttr>(own))
    target = own;
  if (auto gpu = dyn_cast_or_null<bsr::GPUAttr>(*target); gpu && options.tf32)
    target = bsr::GPUAttr::get(gpu.getContext(), gpu.getChip(),
                               gpu.getTileOutputs(), gpu.getTileTokens(),
                               gpu.getShareOutputs(), gpu.getShareTokens(),
                               /*tf32=*/true);
  SmallVector<const cl::Option *> absent;
  if (*target)
    absent.append({&options.vectorBits, &options.numRegisters, &options.l1Bytes,
                   &options.l2Bytes});
  else if (!(target = getCPU(module, dyn_cast_or_null<bsr::CPUAttr>(own),
                             options, machine)))
    return target;
  if (isa<bsr::GPUAttr>(*target))
    absent.append({&options.targetCpu, &options.level, &options.timers});
  else
    absent.append({&options.mmaRate, &options.wgmmaRate, &options.l2Bandwidth,
                   &options.memoryBandwidth, &options.overlap,
                   &options.assemble, &options.tf32});
  if (Error error = verifyAbsent(absent, *target))
    return error;
  if (own && own != *target)
    return createStringError("expected options for the step's target, " +
                             print(own) + ", but got " + print(*target));
  return target;
}

/// Marks weights of `module` and runs the pipeline that `build` adds.
static Error lower(ModuleOp module, const CommandLine &options,
                   llvm::function_ref<void(OpPassManager &)> build) {
  PassManager pm(module.getContext());
  for (const std::string &mark : options.marks) {
    std::unique_ptr<Pass> pass = bsr::createBSRMark();
    std::string reason;
    auto onError = [&](const llvm::Twine &message) {
      reason = message.str();
      return failure();
    };
    if (failed(pass->initializeOptions(mark, onError)))
      return createStringError(
          "expected --mark to be options of bsr-mark, but got '" + mark + "'" +
          (reason.empty() ? "" : " (" + reason + ")"));
    pm.addPass(std::move(pass));
  }
  build(pm);
  if (failed(pm.run(module)))
    return createStringError(
        "expected the step to compile, but got the errors above");
  return Error::success();
}

/// What the code of a step depends on beside the step and the processor.
static llvm::json::Object getCompiler(const CommandLine &options,
                                      Attribute target) {
  llvm::json::Object compiler{
      {"version", llvm::formatv("sparse-compile {0}, LLVM {1}", tools::version,
                                LLVM_VERSION_STRING)
                      .str()},
      {"level", static_cast<int64_t>(options.level)}};
  if (auto cpu = dyn_cast<bsr::CPUAttr>(target)) {
    compiler["vector_bits"] = cpu.getVectorBits();
    compiler["num_registers"] = cpu.getNumRegisters();
    compiler["l1_bytes"] = cpu.getL1Bytes();
    compiler["l2_bytes"] = cpu.getL2Bytes();
  } else {
    compiler["target"] = "scalar";
  }
  return compiler;
}

/// Prints what the manifest in `module` says about memory and products.
static void printReport(ModuleOp module) {
  auto global = module.lookupSymbol<LLVM::GlobalOp>("bsr_step_manifest");
  StringRef text = cast<StringAttr>(global.getValueAttr()).getValue();
  auto manifest = llvm::cantFail(llvm::json::parse(text.drop_back()));
  const llvm::json::Object &step = *manifest.getAsObject();
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

/// Writes the text of `module` to `path`.
static Error writeModule(ModuleOp module, StringRef path) {
  return bsr::writeFile(path, [&](llvm::raw_pwrite_stream &os) -> Error {
    module->print(os);
    return Error::success();
  });
}

/// Compiles `module`, LLVM IR, to the file that the command line asks for.
static Error emit(llvm::Module &module, llvm::TargetMachine &machine,
                  const CommandLine &options, Stopwatch &watch) {
  StringRef output = options.output;
  auto emitObject = [&](llvm::raw_pwrite_stream &os) -> Error {
    SmallVector<char, 0> object;
    llvm::raw_svector_ostream bytes(object);
    if (Error error = bsr::emitObject(module, machine, bytes))
      return error;
    bsr::writeCodeHash(object);
    os << bytes.str();
    return Error::success();
  };
  if (options.emit == Emit::LLVM)
    return bsr::writeFile(output, [&](llvm::raw_pwrite_stream &os) -> Error {
      module.print(os, /*AAW=*/nullptr);
      return Error::success();
    });
  if (options.emit == Emit::Object)
    return bsr::writeFile(output, emitObject);

  SmallString<128> object;
  if (std::error_code error =
          llvm::sys::fs::createTemporaryFile("sparse-compile", "o", object))
    return createStringError("expected to write a temporary file, but got '" +
                             error.message() + "'");
  llvm::FileRemover remover(object);
  if (Error error = bsr::writeFile(object, emitObject))
    return error;
  watch.lap("code");
  return bsr::createFile(output, [&](StringRef temporary) {
    return bsr::linkLibrary(object, temporary);
  });
}

/// Compiles `module` to a library, or what comes before it, for processors.
static Error compileForCPU(OwningOpRef<ModuleOp> module, Attribute target,
                           llvm::TargetMachine &machine,
                           const CommandLine &options, Stopwatch &watch) {
  if (options.emit == Emit::PTX)
    return createStringError("expected --emit=ptx for a GPU, such as "
                             "--target=sm_90a, but got it for " +
                             print(target));
  bsr::ToCPUOptions pipeline;
  setStepOptions(pipeline.step, options);
  pipeline.targetCpu = machine.getTargetCPU().str();
  pipeline.timers = options.timers.getValue();
  if (Error error = lower(*module, options, [&](OpPassManager &pm) {
        bsr::buildToCPUPipeline(pm, pipeline);
      }))
    return error;
  watch.lap("lower");
  if (options.report)
    printReport(*module);
  if (options.emit == Emit::MLIR)
    return writeModule(*module, options.output);

  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(*module, llvmContext, options.input);
  if (!llvmModule)
    return createStringError(
        "expected the step to translate to LLVM IR, but got the errors above");
  module.release().erase();
  if (Error error =
          bsr::completeManifest(*llvmModule, getCompiler(options, target),
                                bsr::getRequiredFeatures(machine)))
    return error;
  watch.lap("translate");
  bsr::optimize(*llvmModule, machine, options.level);
  watch.lap("optimize");
  if (Error error = emit(*llvmModule, machine, options, watch))
    return error;
  watch.lap("write");
  return Error::success();
}

/// What to write for a GPU: what `--emit` says, or else what the output's name
/// ends in.
static Expected<Emit> getEmitForGPU(const CommandLine &options) {
  StringRef output = options.output;
  std::string got = "-o '" + output.str() + "'";
  if (options.emit.getNumOccurrences()) {
    if (options.emit == Emit::PTX || options.emit == Emit::MLIR)
      return options.emit.getValue();
    got = options.emit == Emit::LLVM     ? "--emit=llvm"
          : options.emit == Emit::Object ? "--emit=obj"
                                         : "--emit=so";
  } else if (output.ends_with(".ptx")) {
    return Emit::PTX;
  } else if (output.ends_with(".mlir")) {
    return Emit::MLIR;
  }
  return createStringError("expected -o with a name in .ptx or .mlir, "
                           "--emit=ptx or --emit=mlir for a GPU, for which "
                           "nothing else is made yet, but got " +
                           got);
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
static Expected<bsr::ModelParameters>
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
  auto get = [](const cl::opt<double> &option) {
    return option.getNumOccurrences() ? std::optional<double>(option.getValue())
                                      : std::nullopt;
  };
  bsr::ModelParameters parameters;
  parameters.mmaRate = get(options.mmaRate);
  parameters.wgmmaRate = get(options.wgmmaRate);
  parameters.l2Bandwidth = get(options.l2Bandwidth);
  parameters.memoryBandwidth = get(options.memoryBandwidth);
  parameters.overlap = get(options.overlap).value_or(parameters.overlap);
  return parameters;
}

/// Takes how long it took to make kernels out of `module`: the same step
/// compiles to the same bytes.
static void dropTimes(ModuleOp module) {
  for (auto binary : module.getOps<gpu::BinaryOp>())
    binary.setObjectsAttr(Builder(module).getArrayAttr(llvm::map_to_vector(
        binary.getObjects(), [](Attribute attribute) -> Attribute {
          auto object = cast<gpu::ObjectAttr>(attribute);
          NamedAttrList properties(object.getProperties());
          for (StringRef name : {"LLVMIRToISATimeInMs", "ISAToBinaryTimeInMs"})
            properties.erase(name);
          return gpu::ObjectAttr::get(
              object.getContext(), object.getTarget(), object.getFormat(),
              object.getObject(), properties.getDictionary(object.getContext()),
              object.getKernels());
        })));
}

/// What ptxas makes of the kernels of `module`; nothing, of which it warns,
/// where the tools are not installed.
static Expected<std::optional<llvm::StringMap<bsr::MachineKernel>>>
assemble(ModuleOp module, bsr::GPUAttr target) {
  Expected<bsr::Assembler> assembler = bsr::findAssembler();
  if (!assembler) {
    llvm::WithColor::warning(llvm::errs(), "sparse-compile")
        << llvm::toString(assembler.takeError())
        << ": instructions are those of PTX\n";
    return std::nullopt;
  }
  FailureOr<StringRef> text = bsr::getPTX(module);
  if (failed(text))
    return std::nullopt; // predictKernels says so
  auto machine = bsr::assemble(*assembler, *text, target.getChip());
  if (!machine)
    return machine.takeError();
  return std::move(*machine);
}

/// Compiles `module` to kernels in PTX and launches for GPU `target`.
static Error compileForGPU(ModuleOp module, bsr::GPUAttr target,
                           const CommandLine &options, Stopwatch &watch) {
  Expected<Emit> emit = getEmitForGPU(options);
  if (!emit)
    return emit.takeError();
  Expected<bsr::ModelParameters> parameters = getModelParameters(options);
  if (!parameters)
    return parameters.takeError();
  if (options.assemble && !options.report)
    return createStringError(
        "expected --print-report with --assemble, but got none");
  bsr::ToGPUOptions pipeline;
  setStepOptions(pipeline.step, options);
  pipeline.step.target = print(target);
  if (Error error = lower(module, options, [&](OpPassManager &pm) {
        bsr::buildToGPUPipeline(pm, pipeline);
      }))
    return error;
  dropTimes(module);
  watch.lap("lower");
  if (options.report) {
    std::optional<llvm::StringMap<bsr::MachineKernel>> machine;
    if (options.assemble) {
      auto made = assemble(module, target);
      if (!made)
        return made.takeError();
      machine = std::move(*made);
    }
    auto kernels =
        bsr::predictKernels(module, *parameters, machine ? &*machine : nullptr);
    if (failed(kernels))
      return createStringError(
          "expected kernels that the model knows, but got the errors above");
    bsr::print(*kernels, *bsr::findChip(target.getChip()), llvm::errs());
    watch.lap("predict");
  }
  if (*emit == Emit::MLIR)
    return writeModule(module, options.output);
  FailureOr<StringRef> text = bsr::getPTX(module);
  if (failed(text))
    return createStringError(
        "expected the step to have kernels, but got the error above");
  return bsr::writeFile(options.output,
                        [&](llvm::raw_pwrite_stream &os) -> Error {
                          os << *text;
                          return Error::success();
                        });
}

/// Runs all phases.
static Error compile(const CommandLine &options, MLIRContext &context,
                     llvm::SourceMgr &sources) {
  Stopwatch watch(options.time);
  if (options.level > 3)
    return createStringError("expected -O0 to -O3, but got -O" +
                             llvm::Twine(options.level));
  // Of files that are not there neither is the other.
  if (llvm::sys::fs::equivalent(options.input, options.output))
    return createStringError("expected to write another file than '" +
                             options.input + "', which is read, but got -o '" +
                             options.output + "'");
  auto machine = bsr::createTargetMachine(options.targetCpu, options.level);
  if (!machine)
    return machine.takeError();
  auto module = parse(options.input, sources, context);
  if (!module)
    return module.takeError();
  watch.lap("parse");

  Expected<Attribute> target = getTarget(**module, options, **machine);
  if (!target)
    return target.takeError();
  bsr::attrs::target.set(**module, cast<bsr::TargetAttrInterface>(*target));
  if (auto gpu = dyn_cast<bsr::GPUAttr>(*target))
    return compileForGPU(**module, gpu, options, watch);
  return compileForCPU(std::move(*module), *target, **machine, options, watch);
}

/// What tells a reader where `location` is: a name, a line of a file that can
/// be opened, or both; "" if nothing does.
static std::string describe(Location location) {
  if (auto name = dyn_cast<NameLoc>(location)) {
    std::string place = describe(name.getChildLoc());
    return name.getName().str() + (place.empty() ? "" : " at " + place);
  }
  if (auto line = dyn_cast<FileLineColLoc>(location))
    return line.getFilename() == "-" || line.getFilename() == "<stdin>"
               ? ""
               : llvm::formatv("{0}:{1}", line.getFilename().getValue(),
                               line.getLine())
                     .str();
  if (auto call = dyn_cast<CallSiteLoc>(location))
    return describe(call.getCallee());
  if (auto fused = dyn_cast<FusedLoc>(location))
    for (Location part : fused.getLocations())
      if (std::string place = describe(part); !place.empty())
        return place;
  return "";
}

int main(int argc, char **argv) {
  // What is printed never goes into a file that got a closed stream's number.
  if (llvm::sys::Process::FixupStandardFileDescriptors())
    return 1;
  llvm::setBugReportMsg(tools::describeCrash("sparse-compile"));
  llvm::InitLLVM init(argc, argv);
  cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << tools::describeVersion("sparse-compile")
       << ", LLVM " LLVM_VERSION_STRING "\n";
  });
  CommandLine options;
  cl::HideUnrelatedOptions(options.category);
  cl::ParseCommandLineOptions(argc, argv,
                              "Compiles a training step to a shared library, "
                              "or to kernels for a GPU\n");

  DialectRegistry registry;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  bsr::registerDialect(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerOpenMPDialectTranslation(registry);
  MLIRContext context(registry);
  // A step has thousands of operations: an error says one sentence.
  context.printOpOnDiagnostic(false);
  llvm::SourceMgr sources;
  sources.setDiagHandler(print);
  SourceMgrDiagnosticHandler handler(sources, &context);
  // Remarks are the report: a line each, as warnings are, without the line of
  // the source, which is the whole signature of the step.
  context.getDiagEngine().registerHandler([&](Diagnostic &diagnostic) {
    bool isWarning = diagnostic.getSeverity() == DiagnosticSeverity::Warning;
    if (!isWarning && diagnostic.getSeverity() != DiagnosticSeverity::Remark)
      return failure();
    if (!isWarning && !options.report)
      return success();
    std::string place = describe(diagnostic.getLocation());
    if (!place.empty())
      llvm::errs() << place << ": ";
    llvm::errs() << (isWarning ? "warning: " : "") << diagnostic << "\n";
    return success();
  });

  if (Error error = compile(options, context, sources)) {
    llvm::WithColor::error(llvm::errs(), "sparse-compile")
        << llvm::toString(std::move(error)) << "\n";
    return 1;
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLVM's optimizer and code generator, for one machine.

#include "Codegen.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm-c/Target.h"
#include "llvm/IR/IntrinsicsAArch64.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/SubtargetFeature.h"
#include <unistd.h>

using namespace llvm;
using namespace mlir;

/// Makes the code generators known that steps are compiled with.
static void initializeTargets() {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
}

static Triple getHostTriple() { return Triple(sys::getDefaultTargetTriple()); }

/// The machine that `name` is, or this one if it is empty.
static Expected<Triple> getTriple(StringRef name) {
  if (name.empty())
    return getHostTriple();
  Triple triple(Triple::normalize(name));
  bool isKnown =
      triple.getArch() == Triple::x86_64 || triple.getArch() == Triple::aarch64;
  if (!isKnown || !triple.isOSLinux() || triple.getEnvironment() != Triple::GNU)
    return createStringError("expected --target-triple to be x86_64-linux-gnu "
                             "or aarch64-linux-gnu, but got '" +
                             name + "'");
  return triple;
}

static bool isForeign(const Triple &triple) {
  return triple.getArch() != getHostTriple().getArch();
}

bool bsr::isForeign(const TargetMachine &machine) {
  return ::isForeign(machine.getTargetTriple());
}

Expected<std::unique_ptr<TargetMachine>>
bsr::createTargetMachine(const CommandLine &options) {
  initializeTargets();
  Expected<Triple> triple = getTriple(options.targetTriple);
  if (!triple)
    return triple.takeError();
  std::string error;
  const Target *target = TargetRegistry::lookupTarget(*triple, error);
  assert(target && "the targets are initialized");

  StringRef cpu = options.targetCpu;
  SubtargetFeatures features;
  bool isOther = ::isForeign(*triple);
  if (isOther && !options.targetCpu.getNumOccurrences())
    cpu = triple->isAArch64() ? "generic" : "x86-64";
  if (cpu == "host" && !isOther) {
    cpu = sys::getHostCPUName();
    for (const auto &feature : sys::getHostCPUFeatures())
      features.AddFeature(feature.first(), feature.second);
  } else {
    std::unique_ptr<MCSubtargetInfo> info(
        target->createMCSubtargetInfo(*triple, /*CPU=*/"", /*Features=*/""));
    if (!info->isCPUStringValid(cpu))
      return createStringError(Twine("expected ") +
                               (isOther ? "" : "host or ") + "a processor of " +
                               triple->str() + ", but got '" + cpu + "'");
  }
  // Kernels are vectors of a fixed width. Where LLVM makes vectors of plain
  // loops, it takes the same registers.
  if (triple->isAArch64())
    for (const char *scalable : {"sve", "sme"})
      features.AddFeature(scalable, false);
  return std::unique_ptr<TargetMachine>(target->createTargetMachine(
      *triple, cpu, features.getString(), TargetOptions(), Reloc::PIC_,
      /*CM=*/std::nullopt, *CodeGenOpt::getLevel(options.level)));
}

/// Processors whose vdpbf16ps starts every other cycle, where two multiply-adds
/// of f32 start in each: half as many operations. Measured on Emerald Rapids;
/// of the others LLVM's model of the processor says the same. On Zen 5, two
/// start in each cycle.
static bool hasSlowDots(StringRef processor) {
  return is_contained({"sapphirerapids", "emeraldrapids", "graniterapids",
                       "graniterapids-d", "diamondrapids"},
                      processor);
}

bsr::VectorUnit bsr::getVectorUnit(const TargetMachine &machine) {
  const MCSubtargetInfo &info = *machine.getMCSubtargetInfo();
  auto get = [&](int64_t bits, int64_t registers, StringRef dots) {
    bool hasDots = !dots.empty() && info.checkFeatures(dots);
    return VectorUnit{
        bits, registers, hasDots,
        hasDots && !hasSlowDots(machine.getTargetCPU()),
        machine.getTargetTriple().isX86() && bits == 512 &&
            info.checkFeatures("+amx-tile,+amx-bf16,+avx512bf16")};
  };
  if (machine.getTargetTriple().isAArch64()) // NEON
    return get(128, 32, "+bf16");
  if (info.checkFeatures("+avx512f"))
    return get(512, 32, "+avx512bf16,+avx512vl,+avx512bw");
  if (info.checkFeatures("+avx"))
    return get(256, 16, "");
  return get(128, 16, "");
}

/// Whether `module` has instructions that work on tiles.
static bool hasTiles(ModuleOp module) {
  return module
      ->walk([](LLVM::CallIntrinsicOp call) {
        return call.getIntrin().starts_with("llvm.x86.tdp")
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

std::vector<StringRef> bsr::getRequiredFeatures(const TargetMachine &machine,
                                                ModuleOp module) {
  // Processors have many more, for kernels, cryptography or virtual machines:
  // no code comes of these unless it is asked for. The runtime knows how to
  // find each of these out (runtime/step/Processor.cpp).
  SmallVector<StringRef> used;
  if (machine.getTargetTriple().isAArch64())
    StringRef("altnzcv bf16 complxnum crc cssc dotprod flagm fp-armv8 fp16fml "
              "fptoint fullfp16 i8mm jsconv lse lse2 mops neon rcpc rcpc-immo "
              "rdm sha3")
        .split(used, ' ');
  else
    StringRef("avx avx10.1 avx10.2 avx2 avx512bf16 avx512bitalg avx512bw "
              "avx512cd avx512dq avx512f avx512fp16 avx512ifma avx512vbmi "
              "avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq avxifma "
              "avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 ccmp cf "
              "cmpccxadd egpr f16c fma fma4 gfni lzcnt movbe ndd nf popcnt ppx "
              "push2pop2 sse3 sse4.1 sse4.2 sse4a ssse3 tbm xop zu")
        .split(used, ' ');
  if (hasTiles(module))
    used.append({"amx-bf16", "amx-tile"});
  std::vector<StringRef> features;
  for (const SubtargetFeatureKV &feature :
       machine.getMCSubtargetInfo()->getEnabledProcessorFeatures())
    if (is_contained(used, StringRef(feature.Key)))
      features.push_back(feature.Key);
  return features;
}

bsr::CacheSizes bsr::getCacheSizes(bool isHost) {
  CacheSizes sizes{32 * 1024, 512 * 1024};
#ifdef _SC_LEVEL1_DCACHE_SIZE
  long first = isHost ? sysconf(_SC_LEVEL1_DCACHE_SIZE) : 0;
  long second = isHost ? sysconf(_SC_LEVEL2_CACHE_SIZE) : 0;
  if (first > 0 && second >= first)
    sizes = {first, second};
#endif
  return sizes;
}

/// Lets every function use the widest vectors of the machine: some processors
/// are described as preferring half of it.
static void useFullVectors(Module &module, TargetMachine &machine) {
  if (!machine.getTargetTriple().isX86() ||
      !machine.getMCSubtargetInfo()->checkFeatures("+avx512f"))
    return;
  for (Function &function : module) {
    function.addFnAttr("prefer-vector-width", "512");
    function.addFnAttr("min-legal-vector-width", "512");
  }
}

/// Takes AArch64's instruction where kernels have the one of AVX512_BF16 for as
/// many lanes: both add two products of neighbouring bf16 to each lane of f32.
/// BFDOT rounds the sum of both, and then that with the lane, to odd (Arm
/// Architecture Reference Manual for A-profile, BFDotAdd).
static void useBFDot(Module &module, const TargetMachine &machine) {
  Function *dot = module.getFunction("llvm.x86.avx512bf16.dpbf16ps.128");
  if (!dot || !machine.getTargetTriple().isAArch64())
    return;
  dot->replaceAllUsesWith(Intrinsic::getOrInsertDeclaration(
      &module, Intrinsic::aarch64_neon_bfdot,
      {dot->getReturnType(), dot->getArg(1)->getType()}));
  dot->eraseFromParent();
}

void bsr::optimize(Module &module, TargetMachine &machine, unsigned level) {
  module.setTargetTriple(machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());
  useFullVectors(module, machine);
  useBFDot(module, machine);

  // Without LLVM's vectorization of straight-line code: kernels are vectors
  // already, and to look for more took half of all that compilation takes.
  PipelineTuningOptions tuning;
  tuning.SLPVectorization = false;
  PassBuilder builder(&machine, tuning);
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  const OptimizationLevel levels[] = {
      OptimizationLevel::O0, OptimizationLevel::O1, OptimizationLevel::O2,
      OptimizationLevel::O3};
  ModulePassManager passes =
      level == 0 ? builder.buildO0DefaultPipeline(levels[0])
                 : builder.buildPerModuleDefaultPipeline(levels[level]);
  passes.run(module, modules);
}

void bsr::emitObject(Module &module, TargetMachine &machine,
                     raw_pwrite_stream &os) {
  legacy::PassManager passes;
  [[maybe_unused]] bool fails = machine.addPassesToEmitFile(
      passes, os, /*DwoOut=*/nullptr, CodeGenFileType::ObjectFile);
  assert(!fails && "the native target emits object files");
  passes.run(module);
}

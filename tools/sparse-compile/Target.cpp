// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What sparse-compile makes kernels for.

#include "Target.h"
#include "Codegen.h"
#include "Phases.h"
#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "llvm/ADT/StringExtras.h"

namespace cl = llvm::cl;
using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;

/// Whether `machine` has an instruction that multiplies pairs of bf16 for
/// kernels with vectors of `bits`, or one that is worth it. AArch64 has one
/// width of it.
static bool hasDots(const llvm::TargetMachine &machine, int64_t bits,
                    bool isFast) {
  VectorUnit vectors = getVectorUnit(machine);
  return (isFast ? vectors.hasFastBF16Dots : vectors.hasBF16Dots) &&
         (!machine.getTargetTriple().isAArch64() || bits == vectors.bits);
}

/// How products of bf16 are summed up, as the options say, or else `base`.
static Expected<PairDots> getDots(const CommandLine &options, PairDots base) {
  bool isGiven = options.bf16Dots.getNumOccurrences();
  std::optional<PairDots> given = symbolizePairDots(options.bf16Dots);
  if (isGiven && !given)
    return createStringError("expected --bf16-dots to be none, native or "
                             "emulated, but got '" +
                             options.bf16Dots + "'");
  if (!options.emulateInstructions)
    return isGiven ? *given : base;
  if (isGiven && given != PairDots::Emulated)
    return createStringError("expected --bf16-dots=emulated with "
                             "--emulate-instructions, but got '" +
                             options.bf16Dots + "'");
  return PairDots::Emulated;
}

/// How products of tiles are computed, as the options say, or else `base`.
static Expected<TileProducts> getTiles(const CommandLine &options,
                                       TileProducts base) {
  if (!options.bf16Tiles.getNumOccurrences())
    return base;
  if (auto given = symbolizeTileProducts(options.bf16Tiles))
    return *given;
  return createStringError(
      "expected --bf16-tiles to be none, amx or emulated, but got '" +
      options.bf16Tiles + "'");
}

/// `#bsr.cpu` as `own`, what the step says it is for, or else `machine` has it,
/// and as the options say.
static Expected<Attribute> getCPU(ModuleOp module, CPUAttr own,
                                  const CommandLine &options,
                                  const llvm::TargetMachine &machine) {
  CPUAttr base = own;
  auto get = [](const cl::opt<int64_t> &option, int64_t otherwise) {
    return option.getNumOccurrences() ? option.getValue() : otherwise;
  };
  if (!own) {
    VectorUnit vectors = getVectorUnit(machine);
    CacheSizes caches =
        getCacheSizes(options.targetCpu == "host" && !isForeign(machine));
    base = CPUAttr::get(module.getContext(), vectors.bits, vectors.registers,
                        caches.first, caches.second,
                        hasDots(machine, get(options.vectorBits, vectors.bits),
                                /*isFast=*/true)
                            ? PairDots::Native
                            : PairDots::None,
                        // Where a processor has them, they wait to be measured.
                        TileProducts::None);
  }
  Expected<PairDots> dots = getDots(options, base.getBf16Dots());
  if (!dots)
    return dots.takeError();
  Expected<TileProducts> tiles = getTiles(options, base.getBf16Tiles());
  if (!tiles)
    return tiles.takeError();
  auto target = CPUAttr::getChecked(
      [&] { return mlir::emitError(module.getLoc()); }, module.getContext(),
      get(options.vectorBits, base.getVectorBits()),
      get(options.numRegisters, base.getNumRegisters()),
      get(options.l1Bytes, base.getL1Bytes()),
      get(options.l2Bytes, base.getL2Bytes()), *dots, *tiles);
  if (!target)
    return createStringError("expected a target, but got the errors above");
  if (target.getBf16Dots() == PairDots::Native &&
      !hasDots(machine, target.getVectorBits(), /*isFast=*/false))
    return createStringError(
        "expected --target-cpu to be a processor with AVX512_BF16, or of "
        "AArch64 with BF16 and vectors of 128 bits, for a step with bf16_dots "
        "= native, but got '" +
        machine.getTargetCPU() + "'");
  if (target.getBf16Tiles() == TileProducts::AMX &&
      !getVectorUnit(machine).hasTiles)
    return createStringError(
        "expected --target-cpu to be a processor with AMX of bf16 for a step "
        "with bf16_tiles = amx, but got '" +
        machine.getTargetCPU() + "'");
  return target;
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

/// What the options name as target; null for processors.
static Expected<Attribute> getNamedTarget(MLIRContext *context,
                                          const CommandLine &options) {
  if (options.target == "cpu")
    return Attribute();
  if (options.target == "scalar")
    return ScalarAttr::get(context);
  if (findChip(options.target))
    return GPUAttr::get(context, options.target, /*tileOutputs=*/0,
                        /*tileTokens=*/0, /*shareOutputs=*/0,
                        /*shareTokens=*/0, /*tf32=*/false);
  return createStringError("expected --target to be cpu, scalar, " +
                           nvidia::listChips() + ", but got '" +
                           options.target + "'");
}

Expected<Attribute> bsr::getTarget(ModuleOp module, const CommandLine &options,
                                   const llvm::TargetMachine &machine) {
  Attribute own = attrs::target.get(module);
  Expected<Attribute> target = getNamedTarget(module.getContext(), options);
  if (!target)
    return target;
  if (!options.target.getNumOccurrences() &&
      isa_and_nonnull<ScalarAttr, GPUAttr>(own))
    target = own;
  if (auto gpu = dyn_cast_or_null<GPUAttr>(*target); gpu && options.tf32)
    target = GPUAttr::get(gpu.getContext(), gpu.getChip(), gpu.getTileOutputs(),
                          gpu.getTileTokens(), gpu.getShareOutputs(),
                          gpu.getShareTokens(), /*tf32=*/true);
  SmallVector<const cl::Option *> absent;
  if (*target)
    absent.append({&options.vectorBits, &options.numRegisters, &options.l1Bytes,
                   &options.l2Bytes, &options.bf16Dots, &options.bf16Tiles,
                   &options.emulateInstructions});
  else if (!(target = getCPU(module, dyn_cast_or_null<CPUAttr>(own), options,
                             machine)))
    return target;
  if (isa<GPUAttr>(*target))
    absent.append({&options.targetCpu, &options.level});
  else
    absent.append({&options.mmaRate, &options.wgmmaRate, &options.l2Bandwidth,
                   &options.memoryBandwidth, &options.overlap,
                   &options.assemble, &options.cubin, &options.tf32});
  if (Error error = verifyAbsent(absent, *target))
    return error;
  if (own && own != *target)
    return createStringError("expected options for the step's target, " +
                             print(own) + ", but got " + print(*target));
  return target;
}

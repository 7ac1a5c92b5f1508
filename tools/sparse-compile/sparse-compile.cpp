// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a training step to a shared library, or to kernels in PTX.

#include "../StepFile.h"
#include "../Version.h"
#include "Codegen.h"
#include "Compile.h"
#include "Linker.h"
#include "Memory.h"
#include "Remarks.h"
#include "Target.h"
#include "Tune.h"
#include "bsr/Analysis/Tracing.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Debug/Counter.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/OpenMP/OpenMPToLLVMIRTranslation.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/WithColor.h"

namespace cl = llvm::cl;
using namespace mlir;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;

/// Runs all phases.
static Error runPhases(const bsr::CommandLine &options, MLIRContext &context,
                       llvm::SourceMgr &sources) {
  bsr::Stopwatch watch(options.time);
  if (options.level > 3)
    return createStringError("expected -O0 to -O3, but got -O" +
                             llvm::Twine(options.level));
  if (Error error = bsr::getAllowedMemory(options).takeError())
    return error;
  if (Error error = bsr::verifyStages(options))
    return error;
  // Of files that are not there neither is the other.
  if (llvm::sys::fs::equivalent(options.input, options.output))
    return createStringError("expected to write another file than '" +
                             options.input + "', which is read, but got -o '" +
                             options.output + "'");
  auto machine = bsr::createTargetMachine(options);
  if (!machine)
    return machine.takeError();
  auto module = tools::parseStep(options.input, sources, context);
  if (!module)
    return module.takeError();
  watch.lap("parse");

  Expected<Attribute> target = bsr::getTarget(**module, options, **machine);
  if (!target)
    return target.takeError();
  bsr::attrs::target.set(**module, cast<bsr::TargetAttrInterface>(*target));
  if (Error error = bsr::verifyTuning(*target, **machine, options))
    return error;
  if (auto gpu = dyn_cast<bsr::GPUAttr>(*target))
    return bsr::compileForGPU(std::move(*module), gpu, **machine, options,
                              watch);
  return bsr::compileForCPU(std::move(*module), *target, **machine, options,
                            watch);
}

/// Runs all phases, and writes what passes decided in them.
static Error compile(const bsr::CommandLine &options, MLIRContext &context,
                     llvm::SourceMgr &sources) {
  Expected<bsr::Remarks> remarks = bsr::Remarks::collect(context, options);
  if (!remarks)
    return remarks.takeError();
  Error error = runPhases(options, context, sources);
  return llvm::joinErrors(std::move(error), remarks->write(options));
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

#ifdef BSR_HOLDS_SPARSE_OPT
int sparseOptMain(int argc, char **argv);
#endif

int main(int argc, char **argv) {
#ifdef BSR_HOLDS_SPARSE_OPT
  if (llvm::sys::path::filename(argv[0]) == "sparse-opt")
    return sparseOptMain(argc, argv);
#endif
  // What is printed never goes into a file that got a closed stream's number.
  if (llvm::sys::Process::FixupStandardFileDescriptors())
    return 1;
  llvm::setBugReportMsg(tools::describeCrash("sparse-compile"));
  llvm::InitLLVM init(argc, argv);
  cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << tools::describeVersion("sparse-compile")
       << ", LLVM " LLVM_VERSION_STRING "\n";
  });
  bsr::CommandLine options;
  cl::HideUnrelatedOptions(options.category);
  tracing::DebugCounter::registerCLOptions();
  bsr::registerDebugOnly();
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
  tracing::DebugCounter counter;
  MLIRContext context(registry);
  // A step has thousands of operations: an error says one sentence.
  context.printOpOnDiagnostic(false);
  if (tracing::DebugCounter::isActivated()) {
    // What is counted has one order.
    context.disableMultithreading();
    context.registerActionHandler(
        [&](llvm::function_ref<void()> transform,
            const tracing::Action &action) { counter(transform, action); });
  }
  llvm::SourceMgr sources;
  sources.setDiagHandler(tools::printDiagnostic);
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

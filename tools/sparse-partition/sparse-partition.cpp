// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans a training step for machines that need not be here.

#include "../StepFile.h"
#include "../Version.h"
#include "CoreReport.h"
#include "PlanFor.h"
#include "Report.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Partition/ReadParts.h"
#include "bsr/Pipelines/Pipelines.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/WithColor.h"

namespace cl = llvm::cl;
using namespace mlir;
using namespace mlir::bsr;
using llvm::createStringError;
using llvm::Error;
using llvm::formatv;

static cl::OptionCategory category("Options");
static cl::opt<std::string> input(cl::Positional, cl::init("-"),
                                  cl::desc("<step.mlir>"), cl::cat(category));
static cl::opt<std::string>
    output("o",
           cl::desc("The picture to write, an SVG: what each stage does when"),
           cl::value_desc("file"), cl::cat(category));
static cl::list<std::string>
    marks("mark",
          cl::desc("Make weights block-sparse, as sparse-compile does "
                   "(repeatable)"),
          cl::value_desc("options"), cl::cat(category));
static cl::opt<std::string> planForText(
    "plan-for", cl::Required,
    cl::desc("The machines: devices=N memory=BYTES flops=RATE bandwidth=RATE, "
             "of each device and from one to another, and if they are known "
             "latency=TIME memory-bandwidth=RATE; batch=N, samples of a "
             "training step (default: the step's); samples=N, those of the "
             "step, if its data do not tell; stages=N replicas=N "
             "micro-batches=N, what the plan is to have (default: the best). "
             "Or one machine of many cores: "
             "cores=N memory=BYTES exchange=RATE clock=RATE macs=OxI, of each "
             "core, and vector-macs=N"),
    cl::value_desc("keys"), cl::cat(category));
static cl::opt<Schedule>
    schedule("schedule", cl::init(Schedule::OneForwardOneBackward),
             cl::desc("The order of micro-batches in a stage (default: 1f1b)"),
             cl::values(clEnumValN(Schedule::GPipe, "gpipe",
                                   "all forward, then all backward"),
                        clEnumValN(Schedule::OneForwardOneBackward, "1f1b",
                                   "one forward, one backward")),
             cl::cat(category));
static cl::opt<unsigned>
    numBlocks("blocks", cl::init(64),
              cl::desc("Most blocks that parts of the step are merged to, "
                       "before stages are made of them (default: 64)"),
              cl::value_desc("number"), cl::cat(category));

static cl::opt<uint64_t>
    seed("seed", cl::init(0),
         cl::desc("Of the random patterns that cores are given (default: 0)"),
         cl::value_desc("number"), cl::cat(category));

/// Marks the step of `module` and makes it sparse.
static Error makeSparse(ModuleOp module) {
  PassManager pm(module.getContext());
  for (const std::string &mark : marks) {
    if (Error error = tools::addMark(pm, mark))
      return error;
  }
  ToSparseOptions options;
  buildToSparsePipeline(pm, options);
  if (failed(pm.run(module)))
    return createStringError(
        "expected the step to become sparse, but got the errors above");
  return Error::success();
}

static Error draw(const Report &report) {
  std::error_code code;
  llvm::ToolOutputFile file(output, code, llvm::sys::fs::OF_Text);
  if (!code) {
    drawPicture(report, file.os());
    file.os().close();
    code = file.os().error();
    file.os().clear_error();
  }
  if (code)
    return createStringError("expected to write '" + output + "', but got '" +
                             code.message() + "'");
  file.keep();
  return Error::success();
}

/// Fails if no plan for `devices` of the step's `numBlocks` blocks can have
/// `shape`.
static Error checkShape(const Devices &devices, size_t numBlocks,
                        PlanShape shape) {
  if (size_t(shape.stages) > numBlocks)
    return createStringError(
        formatv("expected at most as many stages as the step has blocks, {0}, "
                "but got stages={1}",
                numBlocks, shape.stages)
            .str());
  int64_t used =
      std::max<int64_t>(shape.stages, 1) * std::max<int64_t>(shape.replicas, 1);
  if (used > devices.count)
    return createStringError(
        formatv("expected devices={0} or more for stages and replicas of "
                "--plan-for, but got devices={1}",
                used, devices.count)
            .str());
  int64_t samples = devices.batch;
  if (shape.microBatches && samples % shape.microBatches)
    return createStringError(
        formatv("expected micro-batches of --plan-for to divide the {0} "
                "samples of a training step, but got micro-batches={1}",
                samples, shape.microBatches)
            .str());
  if (shape.microBatches)
    samples /= shape.microBatches;
  if (shape.replicas && samples % shape.replicas)
    return createStringError(
        formatv("expected replicas of --plan-for to divide the {0} samples "
                "that they share, but got replicas={1}",
                samples, shape.replicas)
            .str());
  return Error::success();
}

/// Plans stages for `devices`, of the shape that is wanted; the step's batch
/// has `samples`, if it is set.
static Error planFor(func::FuncOp step, Devices devices, int64_t samples,
                     PlanShape shape) {
  FailureOr<StepParts> parts = readParts(step);
  if (failed(parts))
    return createStringError(
        "expected a step that can be cut, but got the errors above");
  if (samples)
    parts->samples = samples;
  if (!parts->samples)
    return createStringError(
        "expected data with one first extent, the samples of the step, or "
        "samples=N in --plan-for, but got several or none");
  devices.schedule = schedule;
  if (!devices.batch)
    devices.batch = parts->samples;
  StageChain chain = mergeBlocks(getChain(*parts, devices), numBlocks);
  if (Error error = checkShape(devices, chain.blocks.size(), shape))
    return error;
  std::optional<StagePlan> plan = planStages(chain, devices, shape);
  if (!plan)
    return createNoFit(*parts, chain, devices);
  Report report(*parts, chain, devices, *plan);
  printTable(report, llvm::outs());
  return output.empty() ? Error::success() : draw(report);
}

static Error run(MLIRContext &context, llvm::SourceMgr &sources) {
  if (!numBlocks)
    return createStringError("expected --blocks of 1 or more, but got 0");
  PlanFor text(planForText);
  if (Error error = text.parse())
    return error;
  int64_t samples = 0;
  double clock = 0;
  Cores cores;
  Devices devices;
  PlanShape shape;
  bool isCores = text.has("cores");
  if (isCores) {
    llvm::Expected<Cores> read = readCores(text, clock);
    if (!read)
      return read.takeError();
    cores = *read;
  } else {
    llvm::Expected<Devices> read = readDevices(text, samples, shape);
    if (!read)
      return read.takeError();
    devices = *read;
  }
  auto module = tools::parseStep(input, sources, context);
  if (!module)
    return module.takeError();
  if (Error error = makeSparse(**module))
    return error;
  FailureOr<func::FuncOp> step = getStep(**module);
  assert(succeeded(step) && "parseStep and the pipeline keep one");
  if (isCores)
    return planProducts(*step, cores, clock, seed, llvm::outs());
  return planFor(*step, devices, samples, shape);
}

int main(int argc, char **argv) {
  // What is printed never goes into a file that got a closed stream's number.
  if (llvm::sys::Process::FixupStandardFileDescriptors())
    return 1;
  llvm::setBugReportMsg(tools::describeCrash("sparse-partition"));
  llvm::InitLLVM init(argc, argv);
  cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << tools::describeVersion("sparse-partition")
       << ", LLVM " LLVM_VERSION_STRING "\n";
  });
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(
      argc, argv, "Plans a training step for machines that need not be here\n");
  DialectRegistry registry;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  bsr::registerDialect(registry);
  MLIRContext context(registry);
  context.printOpOnDiagnostic(false);
  llvm::SourceMgr sources;
  sources.setDiagHandler(tools::printDiagnostic);
  SourceMgrDiagnosticHandler handler(sources, &context);
  // Remarks are for sparse-compile --print-report.
  context.getDiagEngine().registerHandler([](Diagnostic &diagnostic) {
    return success(diagnostic.getSeverity() == DiagnosticSeverity::Remark);
  });
  if (Error error = run(context, sources)) {
    llvm::WithColor::error(llvm::errs(), "sparse-partition")
        << llvm::toString(std::move(error)) << "\n";
    return 1;
  }
  return 0;
}

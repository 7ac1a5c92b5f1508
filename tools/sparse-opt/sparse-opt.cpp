// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mlir-opt with this project's dialect, passes and pipelines linked in.

#include "../InputFile.h"
#include "../Version.h"
#include "Help.h"
#include "bsr/Analysis/Tracing.h"
#include "bsr/Pipelines/Pipelines.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/WithColor.h"

static int fail(const llvm::Twine &sentence) {
  llvm::WithColor::error(llvm::errs(), "sparse-opt") << sentence << "\n";
  return EXIT_FAILURE;
}

/// What `MlirOptMain` does, with an input that is looked at before it is
/// parsed.
static int run(int argc, char **argv, mlir::DialectRegistry &registry) {
  auto [input, output] = mlir::registerAndParseCLIOptions(
      argc, argv, "Block-sparse training compiler driver\n", registry);
  auto config = mlir::MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects() || config.shouldListPasses())
    return mlir::asMainReturnCode(
        mlir::MlirOptMain(argc, argv, input, output, registry));
  llvm::InitLLVM init(argc, argv);
  auto buffer = tools::readModule(input);
  if (!buffer)
    return fail(llvm::toString(buffer.takeError()));
  std::string reason;
  auto file = mlir::openOutputFile(output, &reason);
  if (!file)
    return fail("expected to write '" + output + "', but got '" + reason + "'");
  if (failed(
          mlir::MlirOptMain(file->os(), std::move(*buffer), registry, config)))
    return EXIT_FAILURE;
  file->keep();
  return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
  // What is printed never goes into a file that got a closed stream's number.
  if (llvm::sys::Process::FixupStandardFileDescriptors())
    return 1;
  llvm::setBugReportMsg(tools::describeCrash("sparse-opt"));
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << tools::describeVersion("sparse-opt") << ", LLVM " LLVM_VERSION_STRING
       << "\n";
  });
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::bsr::registerDialect(registry);
  mlir::registerAllPasses();
  mlir::bsr::registerPassesAndPipelines();
  mlir::bsr::registerDebugOnly();
  if (tools::asksForHelp(argc, argv)) {
    tools::printHelp();
    return 0;
  }
  return run(argc, argv, registry);
}

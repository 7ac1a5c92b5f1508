// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mlir-opt with this project's dialect, passes and pipelines linked in.

#include "../Version.h"
#include "Help.h"
#include "bsr/Pipelines/Pipelines.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/Process.h"

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
  if (tools::asksForHelp(argc, argv)) {
    tools::printHelp();
    return 0;
  }
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv, "Block-sparse training compiler driver\n", registry));
}

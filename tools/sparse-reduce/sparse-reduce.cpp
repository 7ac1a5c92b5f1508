// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mlir-reduce with this project linked in: makes a step that shows a bug small.

#include "../InputFile.h"
#include "../Version.h"
#include "bsr/Pipelines/Pipelines.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/WithColor.h"

/// Fails if an argument is a file that nests deeper than it can be parsed:
/// `mlirReduceMain` opens its input itself.
static llvm::Error verifyInputs(llvm::ArrayRef<const char *> arguments) {
  for (llvm::StringRef argument : arguments)
    if (!argument.starts_with("-") && llvm::sys::fs::exists(argument))
      if (llvm::Error error = tools::readModule(argument).takeError())
        return error;
  return llvm::Error::success();
}

int main(int argc, char **argv) {
  llvm::setBugReportMsg(tools::describeCrash("sparse-reduce"));
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << tools::describeVersion("sparse-reduce")
       << ", LLVM " LLVM_VERSION_STRING "\n";
  });
  if (llvm::Error error =
          verifyInputs(llvm::ArrayRef(argv, argc).drop_front())) {
    llvm::WithColor::error(llvm::errs(), "sparse-reduce")
        << llvm::toString(std::move(error)) << "\n";
    return 1;
  }
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::bsr::registerDialect(registry);
  mlir::registerAllPasses();
  mlir::bsr::registerPassesAndPipelines();
  mlir::MLIRContext context(registry);
  return mlir::failed(mlir::mlirReduceMain(argc, argv, context));
}

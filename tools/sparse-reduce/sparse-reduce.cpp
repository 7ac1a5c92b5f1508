// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mlir-reduce with this project linked in: makes a step that shows a bug small.

#include "../Version.h"
#include "bsr/Pipelines/Pipelines.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/PrettyStackTrace.h"

int main(int argc, char **argv) {
  llvm::setBugReportMsg(tools::describeCrash("sparse-reduce"));
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << tools::describeVersion("sparse-reduce")
       << ", LLVM " LLVM_VERSION_STRING "\n";
  });
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::bsr::registerDialect(registry);
  mlir::registerAllPasses();
  mlir::bsr::registerPassesAndPipelines();
  mlir::MLIRContext context(registry);
  return mlir::failed(mlir::mlirReduceMain(argc, argv, context));
}

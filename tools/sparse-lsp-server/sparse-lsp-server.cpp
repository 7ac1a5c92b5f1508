// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mlir-lsp-server with this project's dialect linked in: for editors.

#include "../Version.h"
#include "bsr/Pipelines/Pipelines.h"
#include "mlir/IR/Dialect.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/PrettyStackTrace.h"

int main(int argc, char **argv) {
  llvm::setBugReportMsg(tools::describeCrash("sparse-lsp-server"));
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << tools::describeVersion("sparse-lsp-server")
       << ", LLVM " LLVM_VERSION_STRING "\n";
  });
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::bsr::registerDialect(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}

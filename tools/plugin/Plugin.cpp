// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialect and the passes as a plugin of mlir-opt and of what is like it.

#include "../Version.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Pipelines/Pipelines.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Compiler.h"

/// For `--load-dialect-plugin`.
extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT ::mlir::DialectPluginLibraryInfo
mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "SparseOpt", tools::version,
          [](mlir::DialectRegistry *registry) {
            mlir::bsr::registerDialect(*registry);
          }};
}

/// For `--load-pass-plugin`.
extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT ::mlir::PassPluginLibraryInfo
mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "SparseOpt", tools::version,
          [] { mlir::bsr::registerPassesAndPipelines(); }};
}

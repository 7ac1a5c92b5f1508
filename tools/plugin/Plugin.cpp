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
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <link.h>

using llvm::StringRef;

/// Appends the file of a library of another LLVM to `data`, a string.
static int addOtherLLVM(dl_phdr_info *library, size_t, void *data) {
  // "22.1.8", of which names have "22.1" or "22".
  constexpr StringRef version = LLVM_VERSION_STRING;
  StringRef name = llvm::sys::path::filename(library->dlpi_name);
  StringRef found = name;
  if (!found.consume_front("libMLIR.so.") &&
      !found.consume_front("libLLVM.so.") && !found.consume_front("libLLVM-"))
    return 0;
  if (!version.starts_with(found.split(".so").first))
    static_cast<std::string *>(data)->assign(name);
  return 0;
}

/// Returns the version of plugins' interface, or, after a sentence, none for a
/// program of another LLVM: its types have the same names and are others.
static uint32_t getInterfaceVersion() {
  std::string other;
  dl_iterate_phdr(addOtherLLVM, &other);
  if (other.empty())
    return MLIR_PLUGIN_API_VERSION;
  llvm::errs() << "error: expected a program of LLVM " LLVM_VERSION_STRING
                  " to load SparseOptPlugin, but got one with '"
               << other << "'\n";
  return 0;
}

/// For `--load-dialect-plugin`.
extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT ::mlir::DialectPluginLibraryInfo
mlirGetDialectPluginInfo() {
  return {getInterfaceVersion(), "SparseOpt", tools::version,
          [](mlir::DialectRegistry *registry) {
            mlir::bsr::registerDialect(*registry);
          }};
}

/// For `--load-pass-plugin`.
extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT ::mlir::PassPluginLibraryInfo
mlirGetPassPluginInfo() {
  return {getInterfaceVersion(), "SparseOpt", tools::version,
          [] { mlir::bsr::registerPassesAndPipelines(); }};
}

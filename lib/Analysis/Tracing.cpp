// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Debug output of passes, as LLVM_DEBUG has it, with LLVM's release libraries.

#include "bsr/Analysis/Tracing.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Debug.h"

using namespace mlir;

void bsr::registerDebugOnly() {
#ifndef NDEBUG
  if (llvm::cl::getRegisteredOptions().contains("debug-only"))
    return;
  static llvm::SmallVector<std::string> types;
  static llvm::cl::list<std::string> option(
      "debug-only", llvm::cl::CommaSeparated, llvm::cl::value_desc("pass,..."),
      llvm::cl::desc("Print what these passes decide, as they decide it"),
      llvm::cl::callback([](const std::string &type) {
        types.push_back(type);
        auto names = llvm::map_to_vector(
            types, [](const std::string &each) { return each.c_str(); });
        llvm::setCurrentDebugTypes(names.data(), names.size());
        llvm::DebugFlag = true;
      }));
#endif
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What sparse-compile does for processors and for GPUs alike.

#ifndef BSR_TOOLS_SPARSE_COMPILE_PHASES_H
#define BSR_TOOLS_SPARSE_COMPILE_PHASES_H

#include "CommandLine.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/Error.h"
#include <chrono>

namespace mlir::bsr {

/// Prints the time since the last lap, if asked to.
class Stopwatch {
public:
  explicit Stopwatch(bool isOn) : isOn(isOn) {}

  void lap(StringRef phase);

private:
  bool isOn;
  std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
};

/// `attribute` as its text.
std::string print(Attribute attribute);
/// Checks what the command line says of stages.
llvm::Error verifyStages(const CommandLine &options);

/// True if `mark` imposes a pattern on attention: it is for the pass that finds
/// attention.
bool isOfAttention(StringRef mark);
/// Sets the options of a pipeline that all targets have.
void setStepOptions(StepOptions &step, const CommandLine &options);
/// Runs `pm` on `module`.
llvm::Error run(PassManager &pm, ModuleOp module, const CommandLine &options);
/// Marks weights of `module` and runs the pipeline that `build` adds.
llvm::Error lower(ModuleOp module, const CommandLine &options,
                  llvm::function_ref<void(OpPassManager &)> build);
/// Writes the text of `module` to `path`.
llvm::Error writeModule(ModuleOp module, StringRef path);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_PHASES_H

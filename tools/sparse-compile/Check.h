// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares a compiled step with what it means.

#ifndef BSR_TOOLS_SPARSE_COMPILE_CHECK_H
#define BSR_TOOLS_SPARSE_COMPILE_CHECK_H

#include "CommandLine.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"

namespace mlir::bsr {

/// A step as the program that was read defines it: with its marked weights
/// bound to patterns, and nothing rewritten.
class StepCheck {
public:
  /// Takes `module` before anything is lowered. Fails for options of which a
  /// single run of a whole step cannot say whether they are met.
  static llvm::Expected<StepCheck> create(ModuleOp module,
                                          const CommandLine &options);

  /// Runs the step of `library` once on random numbers, and fails where a
  /// result differs from the interpreter's by more than roundings explain.
  llvm::Error run(StringRef library);

private:
  OwningOpRef<ModuleOp> bound;
};

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_CHECK_H

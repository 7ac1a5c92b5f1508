// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How tools of the compiler read a step.

#ifndef BSR_TOOLS_STEPFILE_H
#define BSR_TOOLS_STEPFILE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/SourceMgr.h"

namespace tools {

/// Prints `diagnostic`, with the line of the source that it speaks of unless
/// that is long: a signature has a thousand arguments.
void printDiagnostic(const llvm::SMDiagnostic &diagnostic, void *);

/// Reads and parses the step `path` (`-`: the standard input).
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
parseStep(llvm::StringRef path, llvm::SourceMgr &sources,
          mlir::MLIRContext &context);

/// Adds the pass that marks weights as `mark` says, options of `bsr-mark`.
llvm::Error addMark(mlir::OpPassManager &pm, const std::string &mark);

} // namespace tools

#endif // BSR_TOOLS_STEPFILE_H

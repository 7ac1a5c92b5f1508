// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the LLVM dialect to LLVM IR, an object file or a shared library.

#ifndef BSR_TOOLS_SPARSE_COMPILE_EMITCODE_H
#define BSR_TOOLS_SPARSE_COMPILE_EMITCODE_H

#include "Phases.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/JSON.h"
#include "llvm/Target/TargetMachine.h"

namespace mlir::bsr {

/// Writes what the command line asks for of `module`, a step in the LLVM
/// dialect. `compiler` and `features` go into its manifest: the choices that
/// its code depends on, and what a processor must have to run it. A library is
/// only written if `accept` finds no fault in it.
llvm::Error emitCode(OwningOpRef<ModuleOp> module, llvm::TargetMachine &machine,
                     llvm::json::Object compiler, ArrayRef<StringRef> features,
                     const CommandLine &options, Stopwatch &watch,
                     llvm::function_ref<llvm::Error(StringRef)> accept);

/// Makes a library of `module`, the same, at `library`, a file that is there.
llvm::Error emitLibrary(OwningOpRef<ModuleOp> module,
                        llvm::TargetMachine &machine,
                        llvm::json::Object compiler,
                        ArrayRef<StringRef> features,
                        const CommandLine &options, StringRef library);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_EMITCODE_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Measures how kernels may go through sparse products.

#ifndef BSR_TOOLS_SPARSE_COMPILE_TUNE_H
#define BSR_TOOLS_SPARSE_COMPILE_TUNE_H

#include "CommandLine.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include "llvm/Target/TargetMachine.h"

namespace mlir::bsr {

/// Checks what the command line says of --tune: steps for `target` have kernels
/// with alternatives, and `machine` is the one that this runs on.
llvm::Error verifyTuning(Attribute target, const llvm::TargetMachine &machine,
                         const CommandLine &options);

/// Writes `bsr.schedule` on the sparse products of `module`, launches of
/// clusters, that are faster so on this machine, and says on the standard error
/// what it finds. `compiler`: what code depends on beside the step.
llvm::Error tune(ModuleOp module, llvm::TargetMachine &machine,
                 const llvm::json::Object &compiler,
                 const CommandLine &options);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_TUNE_H

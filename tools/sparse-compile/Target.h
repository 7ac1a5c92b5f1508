// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What sparse-compile makes kernels for.

#ifndef BSR_TOOLS_SPARSE_COMPILE_TARGET_H
#define BSR_TOOLS_SPARSE_COMPILE_TARGET_H

#include "CommandLine.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

namespace llvm {
class TargetMachine;
} // namespace llvm

namespace mlir::bsr {

/// The target of kernels: what `module` says it is for, or else what the
/// options say, which must agree.
llvm::Expected<Attribute> getTarget(ModuleOp module, const CommandLine &options,
                                    const llvm::TargetMachine &machine);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_TARGET_H

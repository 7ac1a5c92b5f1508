// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a step for a target.

#ifndef BSR_TOOLS_SPARSE_COMPILE_COMPILE_H
#define BSR_TOOLS_SPARSE_COMPILE_COMPILE_H

#include "Phases.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/IR/OwningOpRef.h"

namespace llvm {
class TargetMachine;
} // namespace llvm

namespace mlir::bsr {

/// Compiles `module` to a library, or what comes before it, for processors.
llvm::Error compileForCPU(OwningOpRef<ModuleOp> module, Attribute target,
                          llvm::TargetMachine &machine,
                          const CommandLine &options, Stopwatch &watch);
/// Compiles `module` to a library of kernels in PTX and of launches, or what
/// comes before it, for GPU `target`; `machine` is the one whose linker reads
/// the library.
llvm::Error compileForGPU(OwningOpRef<ModuleOp> module, GPUAttr target,
                          llvm::TargetMachine &machine,
                          const CommandLine &options, Stopwatch &watch);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_COMPILE_H

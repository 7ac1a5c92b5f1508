// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a step takes of a machine's memory.

#ifndef BSR_TOOLS_SPARSE_COMPILE_MEMORY_H
#define BSR_TOOLS_SPARSE_COMPILE_MEMORY_H

#include "CommandLine.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

namespace mlir::bsr {

/// The manifest in `module`, a step in the LLVM dialect.
llvm::json::Object getManifest(ModuleOp module);

/// The bytes that the command line allows a step to take. Fails if it says
/// something else.
llvm::Expected<double> getAllowedMemory(const CommandLine &options);

/// Fails if the step of `manifest` takes more memory than the command line
/// allows: buffers, which hold parameters, moments, patterns, batches and
/// results, and the arena.
llvm::Error verifyMemory(const llvm::json::Object &manifest,
                         const CommandLine &options);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_MEMORY_H

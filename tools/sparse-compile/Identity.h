// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tells the code of one compilation of a step from that of another.

#ifndef BSR_TOOLS_SPARSE_COMPILE_IDENTITY_H
#define BSR_TOOLS_SPARSE_COMPILE_IDENTITY_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

namespace mlir::bsr {

/// Adds what only the code generator knows to the manifest in `module`:
///   "compiler": `compiler`, the choices that the code depends on;
///   "target_features": what a processor must have to run the code;
///   "code": the hash of the code, zeros until `writeCodeHash`.
/// An error if the manifest is then none (support/ManifestSchema.h).
llvm::Error completeManifest(llvm::Module &module, llvm::json::Object compiler,
                             llvm::ArrayRef<llvm::StringRef> features);

/// Writes the hash of the code of `object`, an ELF file, into its manifest. All
/// that a step loads into memory counts, with its relocations and symbols, but
/// for the manifest: two compilations with other options and the same code are
/// one.
void writeCodeHash(llvm::MutableArrayRef<char> object);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_IDENTITY_H

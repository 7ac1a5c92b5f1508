// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes a shared library of an object file.

#ifndef BSR_TOOLS_SPARSE_COMPILE_LINKER_H
#define BSR_TOOLS_SPARSE_COMPILE_LINKER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace mlir::bsr {

/// Links `object` with the OpenMP runtime to the shared library `library`, a
/// file that is there. Fails if the library would have something undefined.
/// Needs no other program, and no development files: LLVM's linker is linked
/// in. It runs in a process of its own, since it takes LLVM's options for its
/// own.
llvm::Error linkLibrary(llvm::StringRef object, llvm::StringRef library);

/// Whether this program was called, under the name `program`, to be the linker.
bool isLinker(llvm::StringRef program);

/// Is the linker: does what `arguments` say, and returns the exit status.
int runLinker(llvm::ArrayRef<const char *> arguments);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_LINKER_H

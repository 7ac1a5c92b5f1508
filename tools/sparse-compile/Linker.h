// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes a shared library of an object file.

#ifndef BSR_TOOLS_SPARSE_COMPILE_LINKER_H
#define BSR_TOOLS_SPARSE_COMPILE_LINKER_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace mlir::bsr {

/// Links `object` with the OpenMP runtime `openMP`, LLVM's if that is empty, to
/// the shared library `library`, a file that is there. Fails if the library
/// would have something undefined. Needs no other program, and no development
/// files: LLVM's linker is linked in. It runs in a copy of this process, since
/// it takes LLVM's options for its own.
llvm::Error linkLibrary(llvm::StringRef object, llvm::StringRef library,
                        llvm::StringRef openMP);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_LINKER_H

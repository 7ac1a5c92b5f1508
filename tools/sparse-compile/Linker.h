// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes a shared library of an object file.

#ifndef BSR_TOOLS_SPARSE_COMPILE_LINKER_H
#define BSR_TOOLS_SPARSE_COMPILE_LINKER_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace mlir::bsr {

/// Links `object` with the OpenMP runtime to the shared library `library`.
/// Calls the first of cc, clang, gcc and ld.lld that is on PATH.
llvm::Error linkLibrary(llvm::StringRef object, llvm::StringRef library);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_LINKER_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files that appear complete or not at all.

#ifndef BSR_TOOLS_SPARSE_COMPILE_OUTPUT_H
#define BSR_TOOLS_SPARSE_COMPILE_OUTPUT_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace mlir::bsr {

/// Makes the file `path`: `write` gets a path of an open temporary file beside
/// it, which is flushed to disk and renamed if `write` succeeds and removed
/// otherwise.
llvm::Error createFile(llvm::StringRef path,
                       llvm::function_ref<llvm::Error(llvm::StringRef)> write);

/// Writes into `open`, a file that is there, through a stream; messages call it
/// `path`.
llvm::Error
writeStream(llvm::StringRef open, llvm::StringRef path,
            llvm::function_ref<llvm::Error(llvm::raw_pwrite_stream &)> write);

/// Writes `path` (`-`: the standard output) through a stream.
llvm::Error
writeFile(llvm::StringRef path,
          llvm::function_ref<llvm::Error(llvm::raw_pwrite_stream &)> write);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_OUTPUT_H

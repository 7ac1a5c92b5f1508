// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How tools of the compiler read files of MLIR.

#ifndef BSR_TOOLS_INPUTFILE_H
#define BSR_TOOLS_INPUTFILE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"
#include <memory>

namespace tools {

/// Reads `path`, a file or a pipe (`-`: the standard input) of MLIR. Fails if
/// it is something else, such as a device, longer than any step, or nests
/// deeper than a parser can go.
llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>>
readModule(llvm::StringRef path);

} // namespace tools

#endif // BSR_TOOLS_INPUTFILE_H

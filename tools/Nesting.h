// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How deep a text nests: MLIR's parser takes frames of the stack for each
// level.

#ifndef BSR_TOOLS_NESTING_H
#define BSR_TOOLS_NESTING_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace tools {

/// The levels at which `text`, MLIR, nests at the most: brackets within each
/// other, also those of the aliases that they name, and terms of one affine
/// expression.
size_t getNesting(llvm::StringRef text);

/// Fails if `text`, MLIR of the file `path`, nests deeper than the parser, and
/// what walks over its result, has a stack for.
llvm::Error verifyNesting(llvm::StringRef path, llvm::StringRef text);

} // namespace tools

#endif // BSR_TOOLS_NESTING_H

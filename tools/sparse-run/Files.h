// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arrays by name, in files. Knows nothing of LLVM, which has no exceptions.

#ifndef BSR_TOOLS_SPARSERUN_FILES_H
#define BSR_TOOLS_SPARSERUN_FILES_H

#include "bsr/Interpreter/Numbers.h"

#include <map>
#include <string>

namespace tools {

/// An array, and what its elements are.
struct NamedArray {
  enum Kind { Floats, Integers, Booleans };
  Kind kind;
  mlir::bsr::interpreter::Array array;
};
using NamedArrays = std::map<std::string, NamedArray>;

/// Adds to `arrays` those of `path`: a safetensors file, a folder of NumPy's
/// files "<name>.npy", or one of these. A later array of a name takes the place
/// of an earlier one. Returns what is wrong, a sentence, or nothing.
std::string readArrays(const std::string &path, NamedArrays &arrays);

/// Replaces the safetensors file `path` by one of `arrays`: F64, I64, BOOL.
/// Returns what is wrong, a sentence, or nothing.
std::string writeArrays(const std::string &path, const NamedArrays &arrays);

} // namespace tools

#endif // BSR_TOOLS_SPARSERUN_FILES_H

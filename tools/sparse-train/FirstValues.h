// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the arguments of a step begin with, where a file says it.

#ifndef BSR_TOOLS_SPARSETRAIN_FIRSTVALUES_H
#define BSR_TOOLS_SPARSETRAIN_FIRSTVALUES_H

#include "Session.h"
#include "support/Json.h"
#include "support/TensorFile.h"

#include <optional>
#include <string>

namespace sparse_opt::train {

/// A safetensors file of dense arrays, by the names and in the shapes that the
/// exported program has for its arguments. Of an argument that the compiler
/// made several matrices of, each takes its part. Arrays that the step has no
/// argument for are passed over.
class FirstValues {
public:
  /// Reads the file `path` for the step of `session`; there are none if it is
  /// empty. Throws `Error` if the file has nothing that the step takes.
  FirstValues(const std::string &path, const Session &session);

  /// The entries of buffer `index`, dense and row-major; none if the file does
  /// not have them. Throws `Error` if they are of another type or shape.
  std::optional<std::string> read(int64_t index) const;

  /// Writes them to all arguments of `session` that the file has values for;
  /// of a weight in blocks, what lies in the blocks that are stored.
  void write(Session &session) const;

private:
  /// Makes blocks that are counted as old as the file says that their matrices
  /// are.
  void writeCounts(Session &session) const;

  std::optional<TensorFile> file;
  Json buffers; // of the manifest
  const bsr_step *step;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_FIRSTVALUES_H

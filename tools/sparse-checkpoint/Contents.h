// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a checkpoint or a dense file holds, without the step that it is of.

#ifndef BSR_TOOLS_SPARSECHECKPOINT_CONTENTS_H
#define BSR_TOOLS_SPARSECHECKPOINT_CONTENTS_H

#include "Matrix.h"
#include "support/TensorFile.h"
#include <map>
#include <set>

namespace sparse_opt {

/// A safetensors file: a checkpoint, or dense tensors, with the patterns that
/// belong to them or without.
class Contents {
public:
  /// Reads `path` and validates it; fails if it is damaged.
  explicit Contents(const std::string &path);

  TensorFile file;
  bool isCheckpoint = false;
  std::map<std::string, std::string> texts; // the metadata
  std::vector<Matrix> matrices;

  /// The matrix whose pattern is called `name`, or whose values are in tensor
  /// `name`; null if there is none.
  const Matrix *findPattern(const std::string &name) const;
  const Matrix *findValues(const std::string &name) const;

  /// Whether tensor `name` is a part of a pattern, or of its history.
  bool isOfPattern(const std::string &name) const;

  /// Tensor `name`, dense: zeros where no block is stored. The second form
  /// holds no more of it than the file does.
  std::string dense(const std::string &name) const;
  void writeDense(const std::string &name, const Sink &sink) const;

  /// Fails unless the file is a checkpoint that says what its patterns are.
  void requireCheckpoint() const;

private:
  void readMatrix(const JsonObject &entry);

  // Places in `matrices` by the names of patterns and of values, and the names
  // of tensors that are a part of a pattern.
  std::map<std::string, size_t> patternPlaces, valuePlaces;
  std::set<std::string> patternParts;
};

} // namespace sparse_opt

#endif // BSR_TOOLS_SPARSECHECKPOINT_CONTENTS_H

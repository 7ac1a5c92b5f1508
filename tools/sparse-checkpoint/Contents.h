// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a checkpoint or a dense file holds, without the step that it is of.

#ifndef BSR_TOOLS_SPARSECHECKPOINT_CONTENTS_H
#define BSR_TOOLS_SPARSECHECKPOINT_CONTENTS_H

#include "step/Step.h"
#include "support/TensorFile.h"
#include <map>
#include <set>

namespace sparse_opt {

/// A matrix of which some blocks are stored.
struct Matrix {
  Pattern pattern;                 // with the row view in its arrays
  std::vector<std::string> values; // the tensors whose slots are its blocks

  const std::vector<int32_t> &rowPtr() const { return pattern.arrays[0]; }
  const std::vector<int32_t> &colIdx() const { return pattern.arrays[1]; }
  const std::vector<int32_t> &slot() const { return pattern.arrays[2]; }
  int64_t blocks() const { return int64_t(colIdx().size()); }
  bsr_pattern_view view() const;

  /// Calls `visit(block row, block column, slot)` for each stored block.
  template <typename Visit>
  void forEachBlock(Visit visit) const {
    for (int64_t row = 0; row < pattern.gridRows(); ++row)
      for (int32_t k = rowPtr()[row]; k < rowPtr()[row + 1]; ++k)
        visit(row, int64_t(colIdx()[k]), int64_t(slot()[k]));
  }
};

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

/// Calls `visit(offset in the matrix, offset in the values, bytes)` for each
/// row of each block of `matrix`, whose elements have `elementBytes`.
template <typename Visit>
void forEachPiece(const Matrix &matrix, int64_t elementBytes, Visit visit) {
  const Pattern &pattern = matrix.pattern;
  int64_t bytes = pattern.blockCols * elementBytes;
  matrix.forEachBlock([&](int64_t row, int64_t col, int64_t slot) {
    for (int64_t r = 0; r < pattern.blockRows; ++r)
      visit(((row * pattern.blockRows + r) * pattern.cols +
             col * pattern.blockCols) *
                elementBytes,
            (slot * pattern.blockRows + r) * bytes, bytes);
  });
}

} // namespace sparse_opt

#endif // BSR_TOOLS_SPARSECHECKPOINT_CONTENTS_H

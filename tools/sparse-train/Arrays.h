// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A data set of arrays: a safetensors file, or a folder of NumPy's files.

#ifndef BSR_TOOLS_SPARSETRAIN_ARRAYS_H
#define BSR_TOOLS_SPARSETRAIN_ARRAYS_H

#include "support/ElementType.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sparse_opt::train {

/// An array with an example in each place of its first dimension.
struct ExampleArray {
  ElementType type;
  std::vector<int64_t> shape;
  std::string data; // row-major, little-endian

  int64_t examples() const { return shape.front(); }
  int64_t bytesPerExample() const;
};

/// Arrays by their names, each of the same number of examples; those whose
/// names begin with "held_out." are of examples to measure the loss on.
class Arrays {
public:
  static constexpr std::string_view heldOutPrefix = "held_out.";

  /// Reads a safetensors file, or "<name>.npy" for each array of the folder
  /// `path`. Throws `Error` for what is no array, or of another number of
  /// examples than the others.
  static Arrays read(const std::string &path);

  /// The names of all arrays, those most like `name` first, quotes and commas
  /// between two.
  std::string nearest(const std::string &name) const;
  /// The array `name`, or null.
  const ExampleArray *find(const std::string &name) const;
  /// Whether there are held-out examples apart.
  bool haveHeldOut() const { return heldOut > 0; }
  /// How many examples there are to train on, and of those held out apart.
  int64_t trainExamples() const { return train; }
  int64_t heldOutExamples() const { return heldOut; }
  /// Tells this data set from others.
  uint64_t checksum() const;

private:
  void add(const std::string &path, const std::string &name,
           ExampleArray array);

  std::map<std::string, ExampleArray> arrays;
  int64_t train = 0, heldOut = 0;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_ARRAYS_H

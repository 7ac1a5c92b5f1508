// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// safetensors files: tensors by name, and texts about them.

#ifndef BSR_RUNTIME_TENSORFILE_H
#define BSR_RUNTIME_TENSORFILE_H

#include "Json.h"
#include <string>
#include <string_view>
#include <vector>

namespace bsr {

/// The name of a type in safetensors.
const char *tensorType(bsr_type type);

/// A size that a file may choose.
inline constexpr int64_t anySize = -1;

/// A tensor, and its elements where they lie.
struct Tensor {
  std::string name;
  bsr_type type;
  std::vector<int64_t> shape;
  std::string_view data;
};

/// A safetensors file in memory. Whatever is wrong with it is an error that
/// names it, BSR_INVALID_CHECKPOINT.
class TensorFile {
public:
  /// Reads `path` and its header. `noun` is what the file is, in messages.
  TensorFile(const char *noun, const std::string &path);

  /// The file in messages.
  const std::string &where() const { return place; }
  /// All tensors' names and what is said of them, and "__metadata__".
  const Json &header() const { return entries; }
  bool has(const std::string &name) const { return entries.contains(name); }
  /// The texts of the file.
  JsonObject metadata() const;

  /// Fails unless the metadata's "checksum" is the file's.
  void requireChecksum() const;
  /// Fails unless every byte behind the header is one of one tensor.
  void requireCovered() const;

  /// The data of tensor `name`; fails unless it has this type and shape.
  std::string_view read(const std::string &name, bsr_type type,
                        const std::vector<int64_t> &shape) const;
  /// Tensor `name`, whatever its type and shape.
  Tensor read(const std::string &name) const;

private:
  JsonObject entry(const std::string &name) const;
  std::string_view dataOf(const JsonObject &entry, int64_t bytes) const;

  std::string place;
  std::string file;
  size_t headerEnd = 0;
  Json entries;
};

/// Replaces `path` by a file of `tensors`, those of the largest elements first,
/// so that each is aligned. A "checksum" of `metadata` becomes the file's:
/// XXH64 of the file in which its own 16 digits are zeros.
void writeTensors(const std::string &path, Json metadata,
                  std::vector<Tensor> tensors);

} // namespace bsr

#endif // BSR_RUNTIME_TENSORFILE_H

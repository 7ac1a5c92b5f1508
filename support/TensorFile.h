// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// safetensors files: tensors by name, and texts about them.

#ifndef BSR_SUPPORT_TENSORFILE_H
#define BSR_SUPPORT_TENSORFILE_H

#include "ElementType.h"
#include "File.h"
#include "Json.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparse_opt {

/// A size that a file may choose.
inline constexpr int64_t anySize = -1;

/// A tensor, and its elements where they lie, or what makes them.
struct Tensor {
  std::string name;
  ElementType type;
  std::vector<int64_t> shape;
  std::string_view data;
  std::function<void(const Sink &)> write = {};
};

/// A safetensors file in memory. Whatever is wrong with it is an error that
/// names it, `InvalidTensors`.
class TensorFile {
public:
  /// Reads `path`. `noun` is what the file is, in messages. A file that is far
  /// longer than its header says, or than one of tensors of `mostBytes`, is
  /// refused before it is read.
  TensorFile(const char *noun, const std::string &path,
             int64_t mostBytes = INT64_MAX);

  /// The file in messages.
  const std::string &where() const { return place; }
  /// All tensors' names and what is said of them, and "__metadata__".
  const Json &header() const { return entries; }
  /// The bytes of the file.
  int64_t size() const { return int64_t(head.size() + data.size()); }
  bool has(const std::string &name) const { return entries.contains(name); }
  /// The texts of the file.
  JsonObject metadata() const;

  /// Fails unless the metadata's "checksum" is the file's.
  void requireChecksum() const;
  /// Fails unless every byte behind the header is one of one tensor.
  void requireCovered() const;

  /// The data of tensor `name`; fails unless it has this type and shape.
  std::string_view read(const std::string &name, ElementType type,
                        const std::vector<int64_t> &shape) const;
  /// Tensor `name`, whatever its type and shape.
  Tensor read(const std::string &name) const;

private:
  JsonObject entry(const std::string &name) const;
  std::string_view dataOf(const JsonObject &entry, int64_t bytes) const;

  void requireSize(int64_t bytes, int64_t mostBytes) const;

  std::string place;
  std::string head, data; // up to the end of the header, and the tensors
  Json entries;
};

/// Replaces `path` by a file of `tensors`, those of the largest elements first,
/// so that each is aligned. A "checksum" of `metadata` becomes the file's:
/// XXH64 of the file in which its own 16 digits are zeros, for which tensors
/// that are made are made twice. Fails if the header would be too long to be
/// read.
void writeTensors(const std::string &path, OrderedJson metadata,
                  std::vector<Tensor> tensors);

} // namespace sparse_opt

#endif // BSR_SUPPORT_TENSORFILE_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads tensors of safetensors files.

#ifndef BSR_TOOLS_SPARSETRAIN_SAFETENSORS_H
#define BSR_TOOLS_SPARSETRAIN_SAFETENSORS_H

#include "bsr/runtime.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bsr {

class Safetensors {
public:
  /// Opens a file and reads its header.
  explicit Safetensors(const std::string &path);

  /// The bytes of tensor `name`, which must have this type and shape.
  std::string read(const std::string &name, bsr_type type,
                   const std::vector<int64_t> &shape) const;

private:
  std::string path;
  std::string file;
  size_t dataStart;
  nlohmann::json header;
};

} // namespace bsr

#endif // BSR_TOOLS_SPARSETRAIN_SAFETENSORS_H

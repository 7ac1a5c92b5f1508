// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checkpoints that were changed, with the checksum that they should have.

#ifndef BSR_RUNTIME_CHECK_SEALED_H
#define BSR_RUNTIME_CHECK_SEALED_H

#include "support/Hash.h"
#include <string>

namespace check {
/// The checkpoint `file` with the right checksum, without which nothing behind
/// it would be read; any other file as it is.
inline std::string sealed(std::string file) {
  constexpr std::string_view key = "\"checksum\":\"";
  size_t digits = file.find(key) + key.size();
  if (digits < key.size() || file.size() < digits + 16)
    return file;
  file.replace(digits, 16, 16, '0');
  return file.replace(digits, 16,
                      sparse_opt::hexadecimal(sparse_opt::xxh64(file)));
}
} // namespace check

#endif // BSR_RUNTIME_CHECK_SEALED_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files that are read whole and replaced whole.

#ifndef BSR_RUNTIME_FILE_H
#define BSR_RUNTIME_FILE_H

#include <string>
#include <string_view>
#include <vector>

namespace bsr {

/// The contents of the regular file `path`.
std::string readFile(const std::string &path);

/// Replaces `path` by a file of these pieces: writes "<path>.tmp", flushes it
/// to the device, renames it and flushes the folder. On failure the temporary
/// file is removed and `path` is what it was.
void replaceFile(const std::string &path,
                 const std::vector<std::string_view> &pieces);

} // namespace bsr

#endif // BSR_RUNTIME_FILE_H

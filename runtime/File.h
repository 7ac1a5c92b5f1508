// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files that are read whole and replaced whole.

#ifndef BSR_RUNTIME_FILE_H
#define BSR_RUNTIME_FILE_H

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace bsr {

/// A regular file that is open to be read.
class InputFile {
public:
  explicit InputFile(const std::string &path);
  ~InputFile();
  InputFile(const InputFile &) = delete;
  InputFile &operator=(const InputFile &) = delete;

  uint64_t size() const { return bytes; }
  /// The next `count` bytes; less if the file has become shorter.
  std::string read(uint64_t count);

private:
  std::string path;
  int number;
  uint64_t bytes;
};

/// The contents of the regular file `path`.
std::string readFile(const std::string &path);

/// Takes the next bytes of something.
using Sink = std::function<void(std::string_view)>;

/// Replaces `path` by a file of what `write` gives to its sink: writes
/// "<path>.tmp", flushes it to the device, renames it and flushes the folder.
/// On failure the temporary file is removed and `path` is what it was.
void replaceFile(const std::string &path,
                 const std::function<void(const Sink &)> &write);

/// Replaces `path` by a file of these pieces.
void replaceFile(const std::string &path,
                 const std::vector<std::string_view> &pieces);

} // namespace bsr

#endif // BSR_RUNTIME_FILE_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files that are read whole and replaced whole.

#ifndef BSR_SUPPORT_FILE_H
#define BSR_SUPPORT_FILE_H

#include "Error.h"
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace sparse_opt {

/// The system refused access to a file, of which `path` is the name.
struct FileError : Error {
  FileError(std::string sentence, std::string path, int reason)
      : Error(IOError, std::move(sentence)), path(std::move(path)),
        reason(reason) {}

  std::string path;
  int reason; // of errno; 0 if `path` is no regular file
};

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
  /// What is read next begins at byte `offset`.
  void seek(uint64_t offset);

private:
  std::string path;
  int number;
  uint64_t bytes;
};

/// The contents of the regular file `path`, of at most `mostBytes`.
std::string readFile(const std::string &path, uint64_t mostBytes = UINT64_MAX);

/// The contents of the file, the pipe or the device `path`, up to its end.
std::string readStream(const std::string &path);

/// What a file holds, or the sentence that says why it could not be read.
struct FileText {
  bool isRead;
  std::string text;
};

/// The contents of `path`, a regular file, or a pipe if `takesPipe` (`-`: the
/// standard input, then), of at most `mostBytes`. Throws nothing: for callers
/// without exceptions.
FileText tryReadFile(const std::string &path, uint64_t mostBytes,
                     bool takesPipe = false) noexcept;

/// Writes all of `bytes`; false, with errno set, if the system refuses.
bool writeBytes(int file, std::string_view bytes);

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

} // namespace sparse_opt

#endif // BSR_SUPPORT_FILE_H

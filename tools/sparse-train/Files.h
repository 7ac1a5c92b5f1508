// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The files of a run, called what they are where they fail.

#ifndef BSR_TOOLS_SPARSETRAIN_FILES_H
#define BSR_TOOLS_SPARSETRAIN_FILES_H

#include "support/File.h"

#include <initializer_list>
#include <string>
#include <string_view>

namespace sparse_opt::train {

/// Returns the contents of the file `path`; `what` names it in the error.
std::string readFile(const std::string &path, std::string_view what);

/// The same of a file, a pipe or a device that the user names: nothing of what
/// a folder may hold is waited for.
std::string readStream(const std::string &path, std::string_view what);

/// Replaces `path` by a file that holds `parts` one after the other, so that a
/// failure leaves what was there before. Links are not followed.
void writeFile(const std::string &path, std::string_view what,
               std::initializer_list<std::string_view> parts);

/// The same of what `write` gives to its sink.
void writeFile(const std::string &path, std::string_view what,
               const std::function<void(const Sink &)> &write);

/// A file that is read line by line: what is held of it is a line at most.
class InputLines {
public:
  /// A longer line is cut: nothing that a run writes is one.
  static constexpr size_t longest = 16 << 20;

  /// `what` names the file in errors.
  InputLines(const std::string &path, std::string_view what);

  /// Goes on to the next line, if there is one.
  bool next();
  /// The line without its end, and where it begins.
  std::string_view text() const { return line; }
  uint64_t offset() const { return begin; }
  /// Whether the line has an end: the last one may have none.
  bool isWhole() const { return hasEnd; }
  /// What is read next is the line at `offset`.
  void seek(uint64_t offset);

private:
  bool fill();

  std::string path, what;
  InputFile file;
  std::string buffer, line;
  size_t used = 0;               // bytes of `buffer`
  uint64_t begin = 0, place = 0; // of the line; of what is read next
  bool hasEnd = false;
};

/// Makes `copy` hold what the file `path` holds; `what` names it in errors.
void copyFile(const std::string &path, const std::string &copy,
              std::string_view what);

/// A file that is added to.
class OutputFile {
public:
  OutputFile() = default;
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  /// Opens the file `path`, or makes it, which must not be there then. Links
  /// are not followed. `what` names the file in errors.
  void open(const std::string &path, std::string_view what);
  void create(const std::string &path, std::string_view what);
  void write(std::string_view bytes);
  /// Returns once the file is on the device.
  void flush() const;

private:
  void open(const std::string &path, std::string_view what, int flags);
  void require(bool succeeded) const;

  std::string path, what;
  int number = -1;
};

/// A name for the file `path` when it is set aside: "<path>.<word>", or with a
/// number behind it where that is taken.
std::string nameAside(const std::string &path, std::string_view word);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_FILES_H

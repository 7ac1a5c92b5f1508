// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the fuzz targets share.

#ifndef BSR_FUZZ_TARGET_H
#define BSR_FUZZ_TARGET_H

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace sparse_opt::fuzz {

/// Reads an input. Whatever it holds, this returns; an abort is a finding.
using Target = std::function<void(std::string_view)>;

/// The targets of this program by the names of the formats.
std::map<std::string, Target> targets();

/// A file of an input, in memory.
class MemoryFile {
public:
  explicit MemoryFile(std::string_view contents);
  ~MemoryFile();
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;

  /// A path under which it can be opened.
  const std::string &path() const { return name; }

private:
  int number;
  std::string name;
};

/// A folder that goes at the end of the program.
const std::string &temporaryFolder();

/// Aborts unless `holds`, which `what` says.
void require(bool holds, const char *what);

} // namespace sparse_opt::fuzz

#endif // BSR_FUZZ_TARGET_H

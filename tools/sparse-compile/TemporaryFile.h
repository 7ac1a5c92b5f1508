// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file without a name.

#ifndef BSR_TOOLS_SPARSE_COMPILE_TEMPORARYFILE_H
#define BSR_TOOLS_SPARSE_COMPILE_TEMPORARYFILE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace mlir::bsr {

/// The path of the open file `descriptor` in this process, and in those that it
/// starts until they are other programs: unlike a name, always of that file.
std::string getOpenPath(int descriptor);

/// A file in memory that this process and the programs that it runs can open,
/// by `path`, and by nothing else: no folder has it, and it is gone when this
/// is.
class TemporaryFile {
public:
  TemporaryFile() = default;
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;
  ~TemporaryFile();

  /// Makes the file. Fails if the system refuses.
  llvm::Error create();
  /// Its name in this process and in those that it starts.
  llvm::StringRef path() const { return name; }
  /// What it holds.
  std::string read() const;

private:
  int descriptor = -1;
  std::string name;
};

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_TEMPORARYFILE_H

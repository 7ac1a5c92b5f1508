// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes to a temporary name, flushes, renames.

#include "Output.h"
#include "TemporaryFile.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Signals.h"

#include <cerrno>
#include <unistd.h>

using namespace llvm;
using namespace mlir;

/// `expected to write '<path>', but got <reason>`.
static Error makeError(StringRef path, std::error_code reason) {
  return createStringError(reason, "expected to write '" + path +
                                       "', but got '" + reason.message() + "'");
}

/// True if `path` is a device or a pipe: written to, never replaced.
static bool isSpecial(StringRef path) {
  sys::fs::file_status status;
  return !sys::fs::status(path, status) && !sys::fs::is_regular_file(status) &&
         !sys::fs::is_directory(status);
}

/// Writes through `os` and reports what the stream could not write of `path`.
static Error writeThrough(raw_fd_ostream &os, StringRef path,
                          function_ref<Error(raw_pwrite_stream &)> write) {
  Error error = write(os);
  os.flush();
  std::error_code reason = os.error();
  os.clear_error();
  if (error || !reason)
    return error;
  return makeError(path, reason);
}

/// Has `write` write to a temporary file, and copies that to the standard
/// output, if `path` is `-`, or the device or the pipe `path`.
static Error writeSpecial(StringRef path,
                          function_ref<Error(StringRef)> write) {
  bsr::TemporaryFile temporary;
  if (Error error = temporary.create())
    return error;
  if (Error error = write(temporary.path()))
    return error;
  if (path == "-")
    return writeThrough(outs(), path, [&](raw_pwrite_stream &os) {
      os << temporary.read();
      return Error::success();
    });
  std::error_code error = sys::fs::copy_file(temporary.path(), path);
  return error ? makeError(path, error) : Error::success();
}

Error bsr::createFile(StringRef path, function_ref<Error(StringRef)> write) {
  if (path == "-" || isSpecial(path))
    return writeSpecial(path, write);
  int descriptor;
  SmallString<128> temporary;
  if (std::error_code error =
          sys::fs::createUniqueFile(path + ".%%%%%%%%", descriptor, temporary))
    return makeError(path, error);
  sys::RemoveFileOnSignal(temporary);
  FileRemover remover(temporary);
  scope_exit close([&] { ::close(descriptor); });
  // Not by its name, which another file may have by now.
  if (Error error = write(getOpenPath(descriptor)))
    return error;
  if (::fsync(descriptor) != 0)
    return makeError(path, std::error_code(errno, std::generic_category()));
  if (std::error_code error = sys::fs::rename(temporary, path))
    return makeError(path, error);
  remover.releaseFile();
  sys::DontRemoveFileOnSignal(temporary);
  return Error::success();
}

Error bsr::writeStream(StringRef open, StringRef path,
                       function_ref<Error(raw_pwrite_stream &)> write) {
  std::error_code reason;
  raw_fd_ostream os(open, reason, sys::fs::CD_OpenExisting);
  return reason ? makeError(path, reason) : writeThrough(os, path, write);
}

Error bsr::writeFile(StringRef path,
                     function_ref<Error(raw_pwrite_stream &)> write) {
  if (path == "-")
    return writeThrough(outs(), path, write);
  return createFile(
      path, [&](StringRef open) { return writeStream(open, path, write); });
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes to a temporary name, flushes, renames.

#include "Output.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Signals.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

using namespace llvm;
using namespace mlir;

/// `expected to write '<path>', but got <reason>`.
static Error makeError(StringRef path, std::error_code reason) {
  return createStringError(reason, "expected to write '" + path +
                                       "', but got '" + reason.message() + "'");
}

/// Flushes the file to disk.
static std::error_code flush(StringRef path) {
  int fd;
  if (std::error_code error = sys::fs::openFileForRead(path, fd))
    return error;
  std::error_code result;
  if (::fsync(fd) != 0)
    result = std::error_code(errno, std::generic_category());
  ::close(fd);
  return result;
}

/// True if `path` is a device or a pipe: written to, never replaced.
static bool isSpecial(StringRef path) {
  sys::fs::file_status status;
  return !sys::fs::status(path, status) && !sys::fs::is_regular_file(status) &&
         !sys::fs::is_directory(status);
}

Error bsr::createFile(StringRef path, function_ref<Error(StringRef)> write) {
  bool special = isSpecial(path);
  SmallString<128> temporary;
  if (std::error_code error =
          special
              ? sys::fs::createTemporaryFile("sparse-compile", "", temporary)
              : sys::fs::createUniqueFile(path + ".%%%%%%%%", temporary))
    return makeError(path, error);
  sys::RemoveFileOnSignal(temporary);
  FileRemover remover(temporary);
  if (Error error = write(temporary))
    return error;
  if (special) {
    std::error_code error = sys::fs::copy_file(temporary, path);
    return error ? makeError(path, error) : Error::success();
  }
  if (std::error_code error = flush(temporary))
    return makeError(path, error);
  if (std::error_code error = sys::fs::rename(temporary, path))
    return makeError(path, error);
  remover.releaseFile();
  sys::DontRemoveFileOnSignal(temporary);
  return Error::success();
}

/// Writes through `os` and reports what the stream could not write.
static Error writeStream(StringRef path, raw_fd_ostream &os,
                         function_ref<Error(raw_pwrite_stream &)> write) {
  Error error = write(os);
  os.flush();
  std::error_code reason = os.error();
  os.clear_error();
  if (error || !reason)
    return error;
  return makeError(path, reason);
}

Error bsr::writeFile(StringRef path,
                     function_ref<Error(raw_pwrite_stream &)> write) {
  if (path == "-")
    return writeStream(path, outs(), write);
  return createFile(path, [&](StringRef temporary) -> Error {
    std::error_code reason;
    raw_fd_ostream os(temporary, reason);
    if (reason)
      return makeError(path, reason);
    return writeStream(path, os, write);
  });
}

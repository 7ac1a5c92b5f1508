// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads a file, and replaces one so that no half of it is ever seen.

#include "File.h"
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace sparse_opt;

namespace {
/// An open file, closed at the end of its scope.
struct Descriptor {
  int number;

  Descriptor(const std::string &path, int flags)
      : number(open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  Descriptor(const Descriptor &) = delete;
  ~Descriptor() {
    if (number >= 0)
      close(number);
  }
};
} // namespace

[[noreturn]] static void failToAccess(const char *access,
                                      const std::string &path) {
  int reason = errno;
  throw FileError(concatenate("expected to ", access, " '", path,
                              "', but got '", std::strerror(reason), "'"),
                  path, reason);
}

[[noreturn]] static void refuseKind(const std::string &path) {
  throw FileError(concatenate("expected '", path,
                              "' to be a file, but got a folder or a device"),
                  path, /*reason=*/0);
}

/// Reads at most `count` bytes; 0 at the end of the file `path`.
static size_t readBytes(int file, const std::string &path, char *bytes,
                        size_t count) {
  while (true) {
    ssize_t done = ::read(file, bytes, count);
    if (done >= 0)
      return size_t(done);
    if (errno != EINTR)
      failToAccess("read", path);
  }
}

// A pipe without a writer is waited for when it is opened, if not by this
// flag.
InputFile::InputFile(const std::string &path)
    : path(path),
      number(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  struct stat status;
  if (number < 0)
    failToAccess("read", path);
  if (fstat(number, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(number);
    refuseKind(path);
  }
  bytes = uint64_t(status.st_size);
}

InputFile::~InputFile() { close(number); }

std::string InputFile::read(uint64_t count) {
  std::string contents(size_t(count), '\0');
  size_t done = 0;
  while (done < contents.size()) {
    size_t part =
        readBytes(number, path, contents.data() + done, contents.size() - done);
    if (part == 0)
      break;
    done += part;
  }
  contents.resize(done);
  return contents;
}

void InputFile::seek(uint64_t offset) {
  if (lseek(number, off_t(offset), SEEK_SET) < 0)
    failToAccess("read", path);
}

static void requireSize(const std::string &path, uint64_t bytes,
                        uint64_t mostBytes) {
  if (bytes > mostBytes)
    fail("expected '", path, "' to have at most ", mostBytes,
         " bytes, but got more");
}

std::string sparse_opt::readFile(const std::string &path, uint64_t mostBytes) {
  InputFile file(path);
  requireSize(path, file.size(), mostBytes);
  return file.read(file.size());
}

/// What is left of the open file `path`.
static std::string readToEnd(int file, const std::string &path,
                             uint64_t mostBytes) {
  std::string contents;
  char buffer[1 << 16];
  while (size_t count = readBytes(file, path, buffer, sizeof buffer)) {
    requireSize(path, contents.size() + count, mostBytes);
    contents.append(buffer, count);
  }
  return contents;
}

std::string sparse_opt::readStream(const std::string &path) {
  Descriptor file(path, O_RDONLY);
  if (file.number < 0)
    failToAccess("read", path);
  return readToEnd(file.number, path, UINT64_MAX);
}

/// The contents of `path`, which may be a pipe.
static std::string readPipeOrFile(const std::string &path, uint64_t mostBytes) {
  if (path == "-")
    return readToEnd(STDIN_FILENO, path, mostBytes);
  struct stat status;
  if (stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode)) {
    Descriptor file(path, O_RDONLY);
    if (file.number < 0)
      failToAccess("read", path);
    return readToEnd(file.number, path, mostBytes);
  }
  return readFile(path, mostBytes);
}

FileText sparse_opt::tryReadFile(const std::string &path, uint64_t mostBytes,
                                 bool takesPipe) noexcept {
  try {
    return {true, takesPipe ? readPipeOrFile(path, mostBytes)
                            : readFile(path, mostBytes)};
  } catch (const std::exception &error) {
    return {false, error.what()};
  }
}

bool sparse_opt::writeBytes(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    // Linux writes at most 2^31 - 4096 bytes a call.
    size_t part = std::min(bytes.size(), size_t(1) << 30);
    ssize_t count = ::write(file, bytes.data(), part);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return false;
    bytes.remove_prefix(size_t(count));
  }
  return true;
}

/// Locks `file`, so that two processes never write it at once. A process that
/// waited may hold a file that has meanwhile been renamed: then `path` is
/// another.
static bool lock(const Descriptor &file, const std::string &path) {
  struct stat held, named;
  if (flock(file.number, LOCK_EX | LOCK_NB) != 0 ||
      fstat(file.number, &held) != 0 || stat(path.c_str(), &named) != 0)
    return false;
  errno = EAGAIN;
  return held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

/// The folder that `path` lies in.
static std::string folderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "."
         : slash == 0               ? "/"
                                    : path.substr(0, slash);
}

void sparse_opt::replaceFile(const std::string &path,
                             const std::function<void(const Sink &)> &write) {
  // What a file replaces is a file: never, say, /dev/null.
  struct stat status;
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    refuseKind(path);
  // Opened now: behind the rename nothing may fail that can fail before it.
  std::string folder = folderOf(path);
  Descriptor entry(folder, O_RDONLY | O_DIRECTORY);
  int reasonOfEntry = errno;
  std::string temporary = path + ".tmp";
  Descriptor file(temporary, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
  if (file.number < 0 || !lock(file, temporary)) {
    int reason = errno;
    if (file.number >= 0 && reason != EAGAIN) // no other process writes it
      unlink(temporary.c_str());
    errno = reason;
    failToAccess("write", temporary);
  }
  if (fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode))
    refuseKind(temporary);
  auto require = [&](bool succeeded) {
    if (!succeeded)
      failToAccess("write", path);
  };
  try {
    require(ftruncate(file.number, 0) == 0);
    // Small pieces are gathered.
    constexpr size_t most = 1 << 20;
    std::string gathered;
    auto writeGathered = [&] {
      require(writeBytes(file.number, gathered));
      gathered.clear();
    };
    write([&](std::string_view piece) {
      if (gathered.size() + piece.size() > most)
        writeGathered();
      if (piece.size() > most)
        require(writeBytes(file.number, piece));
      else
        gathered += piece;
    });
    writeGathered();
    require(fsync(file.number) == 0 &&
            rename(temporary.c_str(), path.c_str()) == 0);
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }

  // The rename survives a power cut once the folder is on the device. Some file
  // systems cannot flush a folder.
  errno = reasonOfEntry;
  if (entry.number < 0 || (fsync(entry.number) != 0 && errno != EINVAL))
    failToAccess("flush", folder);
}

void sparse_opt::replaceFile(const std::string &path,
                             const std::vector<std::string_view> &pieces) {
  replaceFile(path, [&](const Sink &sink) {
    for (std::string_view piece : pieces)
      sink(piece);
  });
}

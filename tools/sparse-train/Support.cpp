// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes whole files, and hashes them.

#include "Support.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace bsr;

namespace {
/// An open file descriptor.
class File {
public:
  File(const std::string &path, int flags)
      : fd(open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~File() {
    if (fd >= 0)
      close(fd);
  }
  File(const File &) = delete;
  File &operator=(const File &) = delete;

  operator int() const { return fd; }

private:
  int fd;
};
} // namespace

[[noreturn]] static void refuseKind(const std::string &path,
                                    std::string_view what) {
  fail("expected ", what, " '", path,
       "' to be a file, but got a folder, a pipe or a device");
}

[[noreturn]] static void failToRead(const std::string &path,
                                    std::string_view what) {
  fail("expected ", what, " '", path,
       "' to be readable, but got: ", std::strerror(errno));
}

/// Reads all of `file`.
static std::string read(const File &file, const std::string &path,
                        std::string_view what) {
  std::string contents;
  char buffer[1 << 16];
  ssize_t count;
  while ((count = ::read(file, buffer, sizeof(buffer))) > 0)
    contents.append(buffer, count);
  if (count < 0)
    failToRead(path, what);
  return contents;
}

// A pipe that nobody writes is waited for when it is opened, if not by these
// flags.
std::string bsr::readFile(const std::string &path, std::string_view what) {
  File file(path, O_RDONLY | O_NONBLOCK);
  struct stat info;
  if (file < 0 || fstat(file, &info))
    failToRead(path, what);
  if (!S_ISREG(info.st_mode))
    refuseKind(path, what);
  return read(file, path, what);
}

std::string bsr::readStream(const std::string &path, std::string_view what) {
  File file(path, O_RDONLY);
  if (file < 0)
    failToRead(path, what);
  return read(file, path, what);
}

/// Writes all of `bytes`; false leaves the reason in errno.
static bool write(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0)
      return false;
    bytes.remove_prefix(count);
  }
  return true;
}

/// Whether `file` is a regular one; false leaves the reason in errno.
static bool isFile(int file) {
  struct stat info;
  if (file < 0 || fstat(file, &info))
    return false;
  errno = EINVAL;
  return S_ISREG(info.st_mode);
}

/// Writes and flushes `parts` to `path`; false leaves the reason in errno.
static bool write(const std::string &path,
                  std::initializer_list<std::string_view> parts) {
  // Emptied once it is known to be a file.
  File file(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
  if (!isFile(file) || ftruncate(file, 0))
    return false;
  for (std::string_view part : parts)
    if (!write(file, part))
      return false;
  return fsync(file) == 0;
}

void bsr::writeFile(const std::string &path, std::string_view what,
                    std::initializer_list<std::string_view> parts) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    refuseKind(path, what);
  std::string temporary = path + ".tmp";
  bool isOurs = lstat(temporary.c_str(), &info) || S_ISREG(info.st_mode);
  if (!isOurs)
    refuseKind(temporary, "temporary file");
  if (write(temporary, parts) &&
      std::rename(temporary.c_str(), path.c_str()) == 0)
    return;
  int error = errno;
  unlink(temporary.c_str());
  fail("expected ", what, " '", path,
       "' to be writable, but got: ", std::strerror(error));
}

OutputFile::~OutputFile() {
  if (number >= 0)
    close(number);
}

void OutputFile::open(const std::string &newPath, std::string_view newWhat,
                      int flags) {
  path = newPath;
  what = newWhat;
  number = ::open(
      path.c_str(),
      flags | O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666);
  if (!isFile(number))
    failToWrite();
}

void OutputFile::open(const std::string &newPath, std::string_view newWhat) {
  open(newPath, newWhat, 0);
}

void OutputFile::create(const std::string &newPath, std::string_view newWhat) {
  open(newPath, newWhat, O_CREAT | O_EXCL);
}

void OutputFile::write(std::string_view bytes) {
  if (!::write(number, bytes))
    failToWrite();
}

void OutputFile::flush() const {
  if (fsync(number))
    failToWrite();
}

void OutputFile::failToWrite() const {
  fail("expected ", what, " '", path,
       "' to be writable, but got: ", std::strerror(errno));
}

std::string bsr::nameAside(const std::string &path, std::string_view word) {
  std::string first = path + "." + std::string(word), name = first;
  struct stat info;
  for (int i = 2; lstat(name.c_str(), &info) == 0; ++i)
    name = first + "." + std::to_string(i);
  return name;
}

uint64_t bsr::hashBytes(std::string_view bytes, uint64_t hash) {
  for (unsigned char byte : bytes)
    hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

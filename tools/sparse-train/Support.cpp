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

/// Reads all of `path` into `contents`; false leaves the reason in errno.
static bool read(const std::string &path, std::string &contents) {
  File file(path, O_RDONLY);
  struct stat info;
  if (file < 0 || fstat(file, &info))
    return false;
  if (S_ISREG(info.st_mode))
    contents.reserve(info.st_size);
  char buffer[1 << 16];
  ssize_t count;
  while ((count = ::read(file, buffer, sizeof(buffer))) > 0)
    contents.append(buffer, count);
  return count == 0;
}

/// Writes and flushes `parts` to `path`; false leaves the reason in errno.
static bool write(const std::string &path,
                  std::initializer_list<std::string_view> parts) {
  File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file < 0)
    return false;
  for (std::string_view part : parts)
    while (!part.empty()) {
      ssize_t count = ::write(file, part.data(), part.size());
      if (count < 0)
        return false;
      part.remove_prefix(count);
    }
  return fsync(file) == 0;
}

std::string bsr::readFile(const std::string &path, std::string_view what) {
  std::string contents;
  if (!read(path, contents))
    fail("expected ", what, " '", path,
         "' to be readable, but got: ", std::strerror(errno));
  return contents;
}

void bsr::writeFile(const std::string &path, std::string_view what,
                    std::initializer_list<std::string_view> parts) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    fail("expected ", what, " '", path,
         "' to be a file, but got a folder or a device");
  std::string temporary = path + ".tmp";
  if (write(temporary, parts) &&
      std::rename(temporary.c_str(), path.c_str()) == 0)
    return;
  int error = errno;
  unlink(temporary.c_str());
  fail("expected ", what, " '", path,
       "' to be writable, but got: ", std::strerror(error));
}

uint64_t bsr::hashBytes(std::string_view bytes, uint64_t hash) {
  for (unsigned char byte : bytes)
    hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

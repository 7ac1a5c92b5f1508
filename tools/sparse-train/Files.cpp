// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads, replaces and extends files.

#include "Files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace sparse_opt;
using namespace sparse_opt::train;

[[noreturn]] static void refuseKind(const std::string &path,
                                    std::string_view what) {
  fail("expected ", what, " '", path,
       "' to be a file, but got a folder, a pipe or a device");
}

[[noreturn]] static void failToAccess(const std::string &path,
                                      std::string_view what,
                                      const char *expected, int reason) {
  fail("expected ", what, " '", path, "' to be ", expected,
       ", but got: ", std::strerror(reason));
}

/// Runs `access`, which makes of `path`, called `what`, what is `expected`.
template <typename Access>
static auto name(const std::string &path, std::string_view what,
                 const char *expected, Access access) {
  try {
    return access();
  } catch (const FileError &error) {
    if (error.reason == 0)
      refuseKind(path, what);
    failToAccess(path, what, expected, error.reason);
  }
}

std::string train::readFile(const std::string &path, std::string_view what) {
  return name(path, what, "readable",
              [&] { return sparse_opt::readFile(path); });
}

std::string train::readStream(const std::string &path, std::string_view what) {
  return name(path, what, "readable",
              [&] { return sparse_opt::readStream(path); });
}

InputLines::InputLines(const std::string &path, std::string_view what)
    : path(path), what(what),
      file(name(path, what, "readable", [&] { return InputFile(path); })) {}

/// Reads more into the buffer, all of which is used; false at the end.
bool InputLines::fill() {
  constexpr size_t part = 1 << 16;
  buffer = name(path, what, "readable", [&] { return file.read(part); });
  used = 0;
  return !buffer.empty();
}

bool InputLines::next() {
  line.clear();
  begin = place;
  hasEnd = false;
  while (!hasEnd && (used < buffer.size() || fill())) {
    size_t end = buffer.find('\n', used);
    hasEnd = end != buffer.npos;
    size_t count = (hasEnd ? end : buffer.size()) - used;
    line.append(buffer, used, std::min(count, longest - line.size()));
    used += count + hasEnd;
    place += count + hasEnd;
  }
  return place != begin;
}

void InputLines::seek(uint64_t offset) {
  name(path, what, "readable", [&] { file.seek(offset); });
  buffer.clear();
  used = 0;
  place = offset;
}

void train::copyFile(const std::string &path, const std::string &copy,
                     std::string_view what) {
  constexpr size_t part = 1 << 20;
  writeFile(copy, what, [&](const Sink &sink) {
    InputFile file(path);
    for (std::string bytes; !(bytes = file.read(part)).empty();)
      sink(bytes);
  });
}

void train::writeFile(const std::string &path, std::string_view what,
                      std::initializer_list<std::string_view> parts) {
  writeFile(path, what, [&](const Sink &sink) {
    for (std::string_view part : parts)
      sink(part);
  });
}

void train::writeFile(const std::string &path, std::string_view what,
                      const std::function<void(const Sink &)> &write) {
  struct stat info;
  std::string temporary = path + ".tmp";
  if (lstat(temporary.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    refuseKind(temporary, "temporary file");
  name(path, what, "writable", [&] { replaceFile(path, write); });
}

OutputFile::~OutputFile() {
  if (number >= 0)
    close(number);
}

/// Whether `file` is a regular one; false leaves the reason in errno.
static bool isFile(int file) {
  struct stat info;
  if (file < 0 || fstat(file, &info))
    return false;
  errno = EINVAL;
  return S_ISREG(info.st_mode);
}

void OutputFile::open(const std::string &newPath, std::string_view newWhat,
                      int flags) {
  path = newPath;
  what = newWhat;
  number = ::open(
      path.c_str(),
      flags | O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666);
  require(isFile(number));
}

void OutputFile::open(const std::string &newPath, std::string_view newWhat) {
  open(newPath, newWhat, 0);
}

void OutputFile::create(const std::string &newPath, std::string_view newWhat) {
  open(newPath, newWhat, O_CREAT | O_EXCL);
}

void OutputFile::write(std::string_view bytes) {
  require(writeBytes(number, bytes));
}

void OutputFile::flush() const { require(fsync(number) == 0); }

void OutputFile::require(bool succeeded) const {
  if (!succeeded)
    failToAccess(path, what, "writable", errno);
}

std::string train::nameAside(const std::string &path, std::string_view word) {
  std::string first = path + "." + std::string(word), name = first;
  struct stat info;
  for (int i = 2; lstat(name.c_str(), &info) == 0; ++i)
    name = first + "." + std::to_string(i);
  return name;
}

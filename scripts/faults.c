// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes one system call of a program fail, or kills the program there: preload
// it (LD_PRELOAD). It counts the calls, from 1, that touch the folder
// FAULT_FOLDER, which has an absolute path without links, or a file in it.
//
//   FAULT_CALL    the call that goes wrong; without it none does
//   FAULT         "kill": the process is killed before the call
//                 "half": it is killed after it; a write does half its work
//                 "short": a write does half its work and says so
//                 a number: the call fails with this errno
//   FAULT_COUNT   a file that receives the number of calls at the end

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static long calls;

/// What the call that is about to happen does.
enum fault { NONE, FAIL, HALF, SHORT };

static enum fault count(int touches) {
  const char *call = getenv("FAULT_CALL"), *what = getenv("FAULT");
  if (!touches || ++calls != (call ? atol(call) : -1))
    return NONE;
  if (strcmp(what, "kill") == 0)
    kill(getpid(), SIGKILL);
  if (strcmp(what, "half") == 0)
    return HALF;
  if (strcmp(what, "short") == 0)
    return SHORT;
  errno = atoi(what);
  return FAIL;
}

static int isInside(const char *path) {
  const char *folder = getenv("FAULT_FOLDER");
  return folder && path && strncmp(path, folder, strlen(folder)) == 0;
}

static enum fault countPath(const char *path) { return count(isInside(path)); }

static enum fault countFile(int file) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  ssize_t size = readlink(link, path, sizeof(path) - 1);
  path[size < 0 ? 0 : size] = 0;
  return count(isInside(path));
}

__attribute__((destructor)) static void report(void) {
  const char *path = getenv("FAULT_COUNT");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (!file)
    return;
  fprintf(file, "%ld\n", calls);
  fclose(file);
}

// Calls the real function between what comes before and after it.
#define AROUND(fault, type, name, ...)                                         \
  static __typeof__(&name) real;                                               \
  if (!real)                                                                   \
    real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                         \
  enum fault fault = (__VA_ARGS__);                                            \
  if (fault == FAIL)                                                           \
    return -1;
#define AFTER(fault, result)                                                   \
  do {                                                                         \
    if (fault == HALF)                                                         \
      kill(getpid(), SIGKILL);                                                 \
    return result;                                                             \
  } while (0)

#define OPEN(name)                                                             \
  int name(const char *path, int flags, ...) {                                 \
    va_list rest;                                                              \
    va_start(rest, flags);                                                     \
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;                  \
    va_end(rest);                                                              \
    AROUND(fault, int, name, countPath(path))                                  \
    int file = real(path, flags, mode);                                        \
    AFTER(fault, file);                                                        \
  }
OPEN(open)
OPEN(open64)

#define ON_FILE(name, parameters, arguments)                                   \
  int name parameters {                                                        \
    AROUND(fault, int, name, countFile(file))                                  \
    int result = real arguments;                                               \
    AFTER(fault, result);                                                      \
  }
ON_FILE(fsync, (int file), (file))
ON_FILE(ftruncate, (int file, off_t size), (file, size))
ON_FILE(flock, (int file, int operation), (file, operation))

#define ON_PATH(name, parameters, arguments)                                   \
  int name parameters {                                                        \
    AROUND(fault, int, name, countPath(path))                                  \
    int result = real arguments;                                               \
    AFTER(fault, result);                                                      \
  }
ON_PATH(rename, (const char *path, const char *to), (path, to))
ON_PATH(unlink, (const char *path), (path))
ON_PATH(remove, (const char *path), (path))
ON_PATH(mkdir, (const char *path, mode_t mode), (path, mode))

ssize_t read(int file, void *data, size_t size) {
  AROUND(fault, ssize_t, read, countFile(file))
  ssize_t result = real(file, data, fault == SHORT ? (size + 1) / 2 : size);
  AFTER(fault, result);
}

ssize_t write(int file, const void *data, size_t size) {
  AROUND(fault, ssize_t, write, countFile(file))
  ssize_t result = real(file, data, fault == NONE ? size : (size + 1) / 2);
  AFTER(fault, result);
}

ssize_t writev(int file, const struct iovec *pieces, int number) {
  AROUND(fault, ssize_t, writev, countFile(file))
  ssize_t result = real(file, pieces, fault == NONE ? number : 1);
  AFTER(fault, result);
}

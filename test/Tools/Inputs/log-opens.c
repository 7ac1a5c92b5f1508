// Preloaded, writes a line to standard error for each file that is opened by a
// name to be written, but for those of /proc and /dev.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void log_open(const char *path, int flags) {
  if ((flags & O_ACCMODE) != O_RDONLY && strncmp(path, "/proc/", 6) &&
      strncmp(path, "/dev/", 5))
    dprintf(2, "opened %s%s\n", path, flags & O_EXCL ? " as a new file" : "");
}

#define DEFINE_OPEN(name, parameters, arguments)                               \
  int name parameters {                                                        \
    va_list list;                                                              \
    va_start(list, flags);                                                     \
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0;          \
    va_end(list);                                                              \
    log_open(path, flags);                                                     \
    int(*next) parameters = (int(*) parameters)dlsym(RTLD_NEXT, #name);        \
    return next arguments;                                                     \
  }
DEFINE_OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
DEFINE_OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
DEFINE_OPEN(openat, (int folder, const char *path, int flags, ...),
            (folder, path, flags, mode))
DEFINE_OPEN(openat64, (int folder, const char *path, int flags, ...),
            (folder, path, flags, mode))

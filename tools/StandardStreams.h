// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the tools without LLVM do first and last.

#ifndef BSR_TOOLS_STANDARDSTREAMS_H
#define BSR_TOOLS_STANDARDSTREAMS_H

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>

namespace sparse_opt {

/// Opens /dev/null in the place of standard streams that are closed, as some
/// daemons start their programs. The first file to be opened would have their
/// number otherwise, and receive what is printed. LLVM has the same for its
/// programs.
inline void openStandardStreams() {
  for (int number : {0, 1, 2})
    if (fcntl(number, F_GETFD) < 0 && open("/dev/null", O_RDWR) != number)
      std::abort(); // no message would arrive
}

/// The exit status of a tool that has done what it was asked for: 1, with a
/// sentence, if what it printed was not written.
inline int finishOutput() {
  errno = 0;
  bool isWritten = !std::ferror(stdout);
  if (std::fflush(stdout) == 0 && isWritten)
    return 0;
  std::fprintf(stderr,
               "error: expected to write the standard output, but got: %s\n",
               std::strerror(errno ? errno : EIO));
  return 1;
}

} // namespace sparse_opt

#endif // BSR_TOOLS_STANDARDSTREAMS_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file without a name: what lies in a folder for all, others may open, too.

#include "TemporaryFile.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cerrno>
#include <sys/mman.h>
#include <unistd.h>

using namespace llvm;
using namespace mlir;

std::string bsr::getOpenPath(int descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor);
}

Error bsr::TemporaryFile::create() {
  // Without MFD_CLOEXEC: programs that are run have it.
  descriptor = ::memfd_create("sparse-compile", 0);
  if (descriptor < 0)
    return createStringError(
        "expected to make a temporary file, but got '" +
        std::error_code(errno, std::generic_category()).message() + "'");
  name = getOpenPath(descriptor);
  return Error::success();
}

bsr::TemporaryFile::~TemporaryFile() {
  if (descriptor >= 0)
    ::close(descriptor);
}

std::string bsr::TemporaryFile::read() const {
  auto buffer = MemoryBuffer::getFile(name);
  return buffer ? (*buffer)->getBuffer().str() : "";
}

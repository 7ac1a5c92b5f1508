// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links with LLVM's linker, which is a part of this program.

#include "Linker.h"
#include "lld/Common/Driver.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include <link.h>

LLD_HAS_DRIVER(elf)

using namespace llvm;
using namespace mlir;

/// Returns the file of the C library's mathematics that this program runs with:
/// no development files of the system are needed.
static std::string findMath() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *data) {
        if (!sys::path::filename(info->dlpi_name).starts_with("libm.so"))
          return 0;
        *static_cast<std::string *>(data) = info->dlpi_name;
        return 1;
      },
      &found);
  return found;
}

/// Returns the file of the OpenMP runtime: the one that was installed with this
/// program, or else the one that it was built with.
static std::string findOpenMP(StringRef program) {
  SmallString<128> path = sys::path::parent_path(program);
  sys::path::append(path, "..", "lib", "libomp.so.5");
  return sys::fs::exists(path) ? std::string(path) : BSR_OPENMP;
}

static constexpr StringRef linkerName = "ld.lld";

bool bsr::isLinker(StringRef program) { return program == linkerName; }

int bsr::runLinker(ArrayRef<const char *> arguments) {
  return lld::lldMain(arguments, outs(), errs(), {{lld::Gnu, &lld::elf::link}})
      .retCode;
}

Error bsr::linkLibrary(StringRef object, StringRef library) {
  static int here;
  std::string program = sys::fs::getMainExecutable(nullptr, &here);
  std::string openMP = findOpenMP(program), math = findMath();
  // The library finds the OpenMP runtime by itself: beside it, or where the
  // system looks. No path of this machine is in it.
  SmallVector<StringRef> arguments = {linkerName, "-shared", "--eh-frame-hdr",
                                      "-o",       library,   object,
                                      openMP,     "-rpath",  "$ORIGIN"};
  if (!math.empty())
    arguments.push_back(math);
  std::string message;
  int status = sys::ExecuteAndWait(program, arguments, /*Env=*/std::nullopt,
                                   /*Redirects=*/{}, /*SecondsToWait=*/0,
                                   /*MemoryLimit=*/0, &message);
  if (status == 0)
    return Error::success();
  return createStringError("expected to link with LLVM's OpenMP runtime, '" +
                           openMP + "', but got " +
                           (message.empty()
                                ? "exit code " + std::to_string(status)
                                : "'" + message + "'"));
}

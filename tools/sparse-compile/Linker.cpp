// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links with LLVM's linker, which is a part of this program.

#include "Linker.h"
#include "TemporaryFile.h"
#include "lld/Common/Driver.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include <dlfcn.h>
#include <link.h>

LLD_HAS_DRIVER(elf)

using namespace llvm;
using namespace mlir;

/// Returns the file that this process has loaded of the library `name`.
static std::string findLoaded(StringRef name) {
  std::pair<StringRef, std::string> search(name, "");
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *data) {
        auto &search = *static_cast<std::pair<StringRef, std::string> *>(data);
        if (sys::path::filename(info->dlpi_name) != search.first)
          return 0;
        search.second = info->dlpi_name;
        return 1;
      },
      &search);
  return search.second;
}

/// Returns the file of the OpenMP runtime: the one that was installed with this
/// program; or the one that the system finds, as it will for the step; or else
/// the one that this program was built with.
static std::string findOpenMP(StringRef program) {
  constexpr const char *name = "libomp.so.5";
  SmallString<128> path = sys::path::parent_path(program);
  sys::path::append(path, "..", "lib", name);
  if (sys::fs::exists(path))
    return std::string(path);
  std::string found = dlopen(name, RTLD_LAZY) ? findLoaded(name) : "";
  return found.empty() ? BSR_OPENMP : found;
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
  // The libraries of C, of mathematics, and of what a processor has no
  // instruction for, that this program runs with: no development files of the
  // system are needed.
  std::string openMP = findOpenMP(program), math = findLoaded("libm.so.6"),
              support = findLoaded("libgcc_s.so.1"),
              system = findLoaded("libc.so.6");
  // The library finds the OpenMP runtime by itself: beside it, or where the
  // system looks. No path of this machine is in it. It has nothing undefined:
  // it would not load.
  SmallVector<StringRef> arguments = {
      linkerName, "-shared", "--eh-frame-hdr", "-z",     "defs",   "-o",
      "-",        object,    openMP,           "-rpath", "$ORIGIN"};
  if (!math.empty())
    arguments.push_back(math);
  arguments.push_back("--as-needed");
  for (StringRef needed : {StringRef(support), StringRef(system)})
    if (!needed.empty())
      arguments.push_back(needed);
  TemporaryFile log;
  if (Error error = log.create())
    return error;
  std::string message;
  // This very program, even if another one has taken its place meanwhile.
  int status =
      sys::ExecuteAndWait("/proc/self/exe", arguments, /*Env=*/std::nullopt,
                          {std::nullopt, library, log.path()},
                          /*SecondsToWait=*/0, /*MemoryLimit=*/0, &message);
  if (status == 0)
    return Error::success();
  std::string said = log.read();
  if (!said.empty())
    message = StringRef(said).split('\n').first;
  auto [before, symbol] = StringRef(message).split("undefined symbol: ");
  if (!symbol.empty())
    return createStringError("expected code that the libraries of a step "
                             "complete, but got a use of '" +
                             symbol + "', which none of them has");
  if (message.empty())
    message = "exit code " + std::to_string(status);
  return createStringError("expected to link with LLVM's OpenMP runtime, '" +
                           openMP + "', but got '" + message + "'");
}

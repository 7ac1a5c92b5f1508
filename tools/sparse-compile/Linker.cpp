// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links with LLVM's linker, which is a part of this program.

#include "Linker.h"
#include "Codegen.h"
#include "TemporaryFile.h"
#include "lld/Common/Driver.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <cerrno>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

LLD_HAS_DRIVER(elf)

using namespace llvm;
using namespace mlir;

static constexpr const char *openMPName = "libomp.so.5",
                            *mathName = "libm.so.6",
                            *supportName = "libgcc_s.so.1",
                            *systemName = "libc.so.6";

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
  SmallString<128> path = sys::path::parent_path(program);
  sys::path::append(path, "..", "lib", openMPName);
  if (sys::fs::exists(path))
    return std::string(path);
  std::string found =
      dlopen(openMPName, RTLD_LAZY) ? findLoaded(openMPName) : "";
  return found.empty() ? BSR_OPENMP : found;
}

/// Ends a child process, which is the linker, with its exit status. Its output
/// goes to `library`, and what it says to `log`.
[[noreturn]] static void runLinker(ArrayRef<const char *> arguments,
                                   const std::string &library,
                                   const std::string &log) {
  for (auto [path, number] :
       {std::pair(&library, STDOUT_FILENO), std::pair(&log, STDERR_FILENO)}) {
    int descriptor = open(path->c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0 || dup2(descriptor, number) < 0)
      _exit(1);
  }
  int status =
      lld::lldMain(arguments, outs(), errs(), {{lld::Gnu, &lld::elf::link}})
          .retCode;
  outs().flush();
  errs().flush();
  _exit(status);
}

/// Links in a copy of this process: as a program, it would load LLVM and MLIR
/// once more. Returns the exit status, and where it has none why.
static int runLinkerApart(ArrayRef<const char *> arguments,
                          const std::string &library, const std::string &log,
                          std::string &message) {
  outs().flush();
  errs().flush();
  pid_t child = fork();
  if (child == 0)
    runLinker(arguments, library, log);
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      child = -1;
  if (child > 0 && WIFEXITED(status))
    return WEXITSTATUS(status);
  message = child < 0 ? strerror(errno) : strsignal(WTERMSIG(status));
  return -1;
}

/// The file `name` of the libraries of `triple`: in `sysroot` or, without one,
/// where Debian has packages for cross compilation (`/usr/TRIPLE`) and of
/// other architectures. "" if there is none.
static std::string findForeign(const Triple &triple, StringRef sysroot,
                               StringRef name) {
  std::string machine = (triple.getArchName() + "-linux-gnu").str();
  std::vector<std::string> folders;
  if (sysroot.empty())
    folders = {"/usr/" + machine + "/lib", "/usr/lib/" + machine};
  else
    for (std::string folder : {"/lib/" + machine, "/usr/lib/" + machine,
                               std::string("/lib"), std::string("/usr/lib")})
      folders.push_back(sysroot.str() + folder);
  for (const std::string &folder : folders) {
    SmallString<128> path(folder);
    sys::path::append(path, name);
    if (sys::fs::exists(path))
      return std::string(path);
  }
  return "";
}

Expected<bsr::Libraries> bsr::findLibraries(const TargetMachine &machine,
                                            const CommandLine &options) {
  static int here;
  if (!isForeign(machine) && options.sysroot.empty()) {
    std::string program = sys::fs::getMainExecutable(nullptr, &here);
    StringRef own = options.openMP;
    return Libraries{own.empty() ? findOpenMP(program) : own.str(),
                     findLoaded(mathName), findLoaded(supportName),
                     findLoaded(systemName)};
  }
  Libraries libraries;
  libraries.openMP = options.openMP;
  const Triple &triple = machine.getTargetTriple();
  for (auto [name, path] : {std::pair(openMPName, &libraries.openMP),
                            std::pair(mathName, &libraries.math),
                            std::pair(supportName, &libraries.support),
                            std::pair(systemName, &libraries.system)}) {
    if (path->empty())
      *path = findForeign(triple, options.sysroot, name);
    if (path->empty())
      return createStringError(
          Twine("expected '") + name + "' of " + triple.str() +
          " to link with, but got none in " +
          (options.sysroot.empty() ? "this system"
                                   : "'" + options.sysroot + "'") +
          ": --sysroot says where it is, and --emit=obj needs none");
  }
  return libraries;
}

Error bsr::linkLibrary(StringRef object, StringRef library,
                       const Libraries &libraries) {
  // The library finds the OpenMP runtime by itself: beside it, or where the
  // system looks. No path of this machine is in it. It has nothing undefined:
  // it would not load.
  std::string input = object.str(), output = library.str();
  const std::string &openMP = libraries.openMP;
  SmallVector<const char *> arguments = {
      "ld.lld",       "-shared", "--eh-frame-hdr",
      "--threads=1",  "-z",      "defs",
      "-o",           "-",       input.c_str(),
      openMP.c_str(), "-rpath",  "$ORIGIN"};
  if (!libraries.math.empty())
    arguments.push_back(libraries.math.c_str());
  arguments.push_back("--as-needed");
  for (const std::string *needed : {&libraries.support, &libraries.system})
    if (!needed->empty())
      arguments.push_back(needed->c_str());
  TemporaryFile log;
  if (Error error = log.create())
    return error;
  std::string message;
  int status = runLinkerApart(arguments, output, log.path().str(), message);
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
  return createStringError("expected to link with the OpenMP runtime '" +
                           openMP + "', but got '" + message + "'");
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds and calls the system's linker.

#include "Linker.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

using namespace llvm;
using namespace mlir;

Error bsr::linkLibrary(StringRef object, StringRef library) {
  SmallVector<StringRef> candidates = {"cc", "clang", "gcc", "ld.lld"};
  std::string linker;
  bool isDriver = true;
  for (StringRef candidate : candidates) {
    if (ErrorOr<std::string> path = sys::findProgramByName(candidate)) {
      linker = *path;
      isDriver = candidate != "ld.lld";
      break;
    }
  }
  if (linker.empty())
    return createStringError("expected cc, clang, gcc or ld.lld on PATH to "
                             "link with, but got none of them");

  // The library finds the OpenMP runtime by itself: beside it, where this
  // machine has it, or else where the system looks.
  StringRef directory = sys::path::parent_path(BSR_OPENMP);
  std::string rpath =
      (isDriver ? "-Wl,-rpath,$ORIGIN:" : "-rpath=$ORIGIN:") + directory.str();
  SmallVector<StringRef> arguments = {linker, "-shared",  "-o", library,
                                      object, BSR_OPENMP, rpath};
  if (isDriver)
    arguments.push_back("-lm");
  std::string message;
  int status = sys::ExecuteAndWait(linker, arguments, /*Env=*/std::nullopt,
                                   /*Redirects=*/{}, /*SecondsToWait=*/0,
                                   /*MemoryLimit=*/0, &message);
  if (status == 0)
    return Error::success();
  if (!message.empty())
    return createStringError("expected '" + linker + "' to link, but got '" +
                             message + "'");
  return createStringError("expected '" + linker +
                           "' to link, but got exit code " + Twine(status));
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds and calls ptxas and nvdisasm.

#include "Assembler.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlir;

static Expected<std::string> findTool(StringRef name) {
  std::optional<std::string> said = sys::Process::GetEnv(name.upper());
  if (said && !said->empty())
    return *said;
  if (ErrorOr<std::string> found = sys::findProgramByName(name))
    return *found;
  SmallString<128> folder(
      sys::Process::GetEnv("CUDA_HOME").value_or("/usr/local/cuda"));
  sys::path::append(folder, "bin");
  if (ErrorOr<std::string> found =
          sys::findProgramByName(name, StringRef(folder)))
    return *found;
  return createStringError("expected ptxas and nvdisasm to assemble with, but "
                           "got no " +
                           name);
}

Expected<bsr::Assembler> bsr::findAssembler() {
  Expected<std::string> ptxas = findTool("ptxas");
  if (!ptxas)
    return ptxas.takeError();
  Expected<std::string> nvdisasm = findTool("nvdisasm");
  if (!nvdisasm)
    return nvdisasm.takeError();
  return Assembler{*ptxas, *nvdisasm};
}

namespace {
/// A file that is there as long as this is.
struct TemporaryFile {
  SmallString<128> path;
  FileRemover remover;

  Error create(StringRef suffix) {
    if (std::error_code error =
            sys::fs::createTemporaryFile("sparse-compile", suffix, path))
      return createStringError("expected to write a temporary file, but got '" +
                               error.message() + "'");
    remover.setFile(path);
    return Error::success();
  }
  std::string read() const {
    auto buffer = MemoryBuffer::getFile(path);
    return buffer ? (*buffer)->getBuffer().str() : "";
  }
};
} // namespace

/// Runs a program; its streams go to `out` and `errors`.
static Error run(ArrayRef<StringRef> command, const TemporaryFile &out,
                 const TemporaryFile &errors) {
  std::string message;
  std::optional<StringRef> streams[] = {std::nullopt, StringRef(out.path),
                                        StringRef(errors.path)};
  int status = sys::ExecuteAndWait(command[0], command, /*Env=*/std::nullopt,
                                   streams, /*SecondsToWait=*/0,
                                   /*MemoryLimit=*/0, &message);
  if (status == 0)
    return Error::success();
  if (message.empty())
    message = StringRef(errors.read()).trim().str();
  if (message.empty())
    message = "exit code " + std::to_string(status);
  return createStringError("expected '" + command[0] +
                           "' to succeed, but got '" + message + "'");
}

Expected<StringMap<bsr::MachineKernel>>
bsr::assemble(const Assembler &assembler, StringRef text, StringRef chip) {
  TemporaryFile ptx, cubin, code, needs, unused;
  std::pair<TemporaryFile *, StringRef> files[] = {{&ptx, "ptx"},
                                                   {&cubin, "cubin"},
                                                   {&code, "sass"},
                                                   {&needs, "txt"},
                                                   {&unused, "txt"}};
  for (auto [file, suffix] : files)
    if (Error error = file->create(suffix))
      return error;
  std::error_code error;
  raw_fd_ostream os(ptx.path, error);
  os << text;
  os.close();
  if (error || os.has_error())
    return createStringError("expected to write '" + ptx.path + "', but got '" +
                             os.error().message() + "'");
  std::string architecture = "-arch=" + chip.str();
  if (Error error =
          run({assembler.ptxas, architecture, "-v", ptx.path, "-o", cubin.path},
              unused, needs))
    return error;
  if (Error error = run({assembler.nvdisasm, "-c", cubin.path}, code, unused))
    return error;
  return parseMachine(code.read(), needs.read());
}

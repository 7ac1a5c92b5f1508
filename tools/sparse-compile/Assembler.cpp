// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds and calls ptxas and nvdisasm.

#include "Assembler.h"
#include "Output.h"
#include "TemporaryFile.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlir;
using mlir::bsr::TemporaryFile;
using mlir::bsr::writeStream;

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

Expected<std::string> bsr::findPtxas() { return findTool("ptxas"); }

Expected<bsr::Assembler> bsr::findAssembler() {
  Expected<std::string> ptxas = findTool("ptxas");
  if (!ptxas)
    return ptxas.takeError();
  Expected<std::string> nvdisasm = findTool("nvdisasm");
  if (!nvdisasm)
    return nvdisasm.takeError();
  return Assembler{*ptxas, *nvdisasm};
}

/// Runs a program; its streams go to `out` and `errors`.
static Error run(ArrayRef<StringRef> command, const TemporaryFile &out,
                 const TemporaryFile &errors) {
  std::string message;
  std::optional<StringRef> streams[] = {std::nullopt, out.path(),
                                        errors.path()};
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

/// Has `ptxas` assemble `text` for `chip`; what it says of the kernels goes to
/// `needs`.
static Error assemble(StringRef ptxas, StringRef text, StringRef chip,
                      const TemporaryFile &cubin, const TemporaryFile &needs) {
  TemporaryFile ptx, unused;
  for (TemporaryFile *file : {&ptx, &unused})
    if (Error error = file->create())
      return error;
  if (Error error =
          writeStream(ptx.path(), "the kernels", [&](raw_pwrite_stream &os) {
            os << text;
            return Error::success();
          }))
    return error;
  std::string architecture = "-arch=" + chip.str();
  return run({ptxas, architecture, "-v", ptx.path(), "-o", cubin.path()},
             unused, needs);
}

Expected<std::string> bsr::makeCubin(StringRef ptxas, StringRef text,
                                     StringRef chip) {
  TemporaryFile cubin, needs;
  for (TemporaryFile *file : {&cubin, &needs})
    if (Error error = file->create())
      return error;
  if (Error error = assemble(ptxas, text, chip, cubin, needs))
    return error;
  return cubin.read();
}

Expected<StringMap<bsr::gpu::SASSKernel>>
bsr::disassemble(const Assembler &assembler, StringRef text, StringRef chip) {
  TemporaryFile cubin, code, needs, unused;
  for (TemporaryFile *file : {&cubin, &code, &needs, &unused})
    if (Error error = file->create())
      return error;
  if (Error error = assemble(assembler.ptxas, text, chip, cubin, needs))
    return error;
  if (Error error = run({assembler.nvdisasm, "-c", cubin.path()}, code, unused))
    return error;
  return bsr::gpu::parseMachine(code.read(), needs.read());
}

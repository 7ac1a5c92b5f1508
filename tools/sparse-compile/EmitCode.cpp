// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the LLVM dialect to LLVM IR, an object file or a shared library.

#include "EmitCode.h"
#include "Codegen.h"
#include "Identity.h"
#include "Linker.h"
#include "Output.h"
#include "TemporaryFile.h"
#include "mlir/Target/LLVMIR/Export.h"

using namespace mlir;
using namespace mlir::bsr;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;

/// Compiles `module`, LLVM IR, to the file that the command line asks for.
static Error emit(llvm::Module &module, llvm::TargetMachine &machine,
                  const CommandLine &options, Stopwatch &watch,
                  llvm::function_ref<Error(StringRef)> accept) {
  StringRef output = options.output;
  auto emitObject = [&](llvm::raw_pwrite_stream &os) -> Error {
    SmallVector<char, 0> object;
    llvm::raw_svector_ostream bytes(object);
    bsr::emitObject(module, machine, bytes);
    writeCodeHash(object);
    os << bytes.str();
    return Error::success();
  };
  if (options.emit == Emit::LLVM)
    return writeFile(output, [&](llvm::raw_pwrite_stream &os) -> Error {
      module.print(os, /*AAW=*/nullptr);
      return Error::success();
    });
  if (options.emit == Emit::Object)
    return writeFile(output, emitObject);

  TemporaryFile object;
  if (Error error = object.create())
    return error;
  if (Error error = writeStream(object.path(), "the object file", emitObject))
    return error;
  watch.lap("code");
  Expected<Libraries> libraries = findLibraries(machine, options);
  if (!libraries)
    return libraries.takeError();
  return createFile(output, [&](StringRef open) -> Error {
    if (Error error = linkLibrary(object.path(), open, *libraries))
      return error;
    watch.lap("link");
    return accept(open);
  });
}

Error bsr::emitCode(OwningOpRef<ModuleOp> module, llvm::TargetMachine &machine,
                    llvm::json::Object compiler, ArrayRef<StringRef> features,
                    const CommandLine &options, Stopwatch &watch,
                    llvm::function_ref<Error(StringRef)> accept) {
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(*module, llvmContext, options.input);
  if (!llvmModule)
    return createStringError(
        "expected the step to translate to LLVM IR, but got the errors above");
  module.release().erase();
  if (Error error =
          completeManifest(*llvmModule, std::move(compiler), features))
    return error;
  watch.lap("translate");
  optimize(*llvmModule, machine, options.level);
  watch.lap("optimize");
  if (Error error = emit(*llvmModule, machine, options, watch, accept))
    return error;
  watch.lap("write");
  return Error::success();
}

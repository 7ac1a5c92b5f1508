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

/// Writes the object code of `module`, with its hash.
static Error writeObject(llvm::Module &module, llvm::TargetMachine &machine,
                         llvm::raw_pwrite_stream &os) {
  SmallVector<char, 0> object;
  llvm::raw_svector_ostream bytes(object);
  emitObject(module, machine, bytes);
  writeCodeHash(object);
  os << bytes.str();
  return Error::success();
}

/// The same into a new file.
static Error writeObject(llvm::Module &module, llvm::TargetMachine &machine,
                         TemporaryFile &object) {
  if (Error error = object.create())
    return error;
  return writeStream(object.path(), "the object file",
                     [&](llvm::raw_pwrite_stream &os) {
                       return writeObject(module, machine, os);
                     });
}

/// Compiles `module`, LLVM IR, to the file that the command line asks for.
static Error emit(llvm::Module &module, llvm::TargetMachine &machine,
                  const CommandLine &options, Stopwatch &watch,
                  llvm::function_ref<Error(StringRef)> accept) {
  StringRef output = options.output;
  if (options.emit == Emit::LLVM)
    return writeFile(output, [&](llvm::raw_pwrite_stream &os) -> Error {
      module.print(os, /*AAW=*/nullptr);
      return Error::success();
    });
  if (options.emit == Emit::Object)
    return writeFile(output, [&](llvm::raw_pwrite_stream &os) {
      return writeObject(module, machine, os);
    });

  TemporaryFile object;
  if (Error error = writeObject(module, machine, object))
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

/// `module` as LLVM IR, with a complete manifest.
static Expected<std::unique_ptr<llvm::Module>>
translate(OwningOpRef<ModuleOp> module, llvm::LLVMContext &context,
          llvm::json::Object compiler, ArrayRef<StringRef> features,
          const CommandLine &options) {
  std::unique_ptr<llvm::Module> translated =
      translateModuleToLLVMIR(*module, context, options.input);
  if (!translated)
    return createStringError(
        "expected the step to translate to LLVM IR, but got the errors above");
  if (Error error =
          completeManifest(*translated, std::move(compiler), features))
    return std::move(error);
  return std::move(translated);
}

Error bsr::emitCode(OwningOpRef<ModuleOp> module, llvm::TargetMachine &machine,
                    llvm::json::Object compiler, ArrayRef<StringRef> features,
                    const CommandLine &options, Stopwatch &watch,
                    llvm::function_ref<Error(StringRef)> accept) {
  llvm::LLVMContext context;
  auto translated = translate(std::move(module), context, std::move(compiler),
                              features, options);
  if (!translated)
    return translated.takeError();
  watch.lap("translate");
  optimize(**translated, machine, options.level);
  watch.lap("optimize");
  if (Error error = emit(**translated, machine, options, watch, accept))
    return error;
  watch.lap("write");
  return Error::success();
}

Error bsr::emitLibrary(OwningOpRef<ModuleOp> module,
                       llvm::TargetMachine &machine,
                       llvm::json::Object compiler,
                       ArrayRef<StringRef> features, const CommandLine &options,
                       StringRef library) {
  llvm::LLVMContext context;
  auto translated = translate(std::move(module), context, std::move(compiler),
                              features, options);
  if (!translated)
    return translated.takeError();
  optimize(**translated, machine, options.level);
  TemporaryFile object;
  if (Error error = writeObject(**translated, machine, object))
    return error;
  Expected<Libraries> libraries = findLibraries(machine, options);
  if (!libraries)
    return libraries.takeError();
  return linkLibrary(object.path(), library, *libraries);
}

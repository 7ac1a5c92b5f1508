// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes a shared library of an object file.

#ifndef BSR_TOOLS_SPARSE_COMPILE_LINKER_H
#define BSR_TOOLS_SPARSE_COMPILE_LINKER_H

#include "CommandLine.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Target/TargetMachine.h"

namespace mlir::bsr {

/// The files of the libraries that a step is linked with; "" for one that it
/// does without.
struct Libraries {
  /// The OpenMP runtime; the libraries of mathematics, of what a processor has
  /// no instruction for, and of C.
  std::string openMP, math, support, system;
};

/// The libraries of the machine that steps are compiled for: those that this
/// program runs with, so that no development files are needed; for another
/// machine, those in `options.sysroot`. Fails if that has not all of them.
llvm::Expected<Libraries> findLibraries(const llvm::TargetMachine &machine,
                                        const CommandLine &options);

/// Links `object` with `libraries` to the shared library `library`, a file that
/// is there. Fails if the library would have something undefined. Needs no
/// other program: LLVM's linker is linked in. It runs in a copy of this
/// process, since it takes LLVM's options for its own.
llvm::Error linkLibrary(llvm::StringRef object, llvm::StringRef library,
                        const Libraries &libraries);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_LINKER_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Has NVIDIA's tools make machine code of PTX, and tell what it is.

#ifndef BSR_TOOLS_SPARSE_COMPILE_ASSEMBLER_H
#define BSR_TOOLS_SPARSE_COMPILE_ASSEMBLER_H

#include "bsr/Codegen/GPU/Prediction/SASS.h"

namespace mlir::bsr {

/// The paths of NVIDIA's assembler and disassembler.
struct Assembler {
  std::string ptxas, nvdisasm;
};

/// Finds both, each where the environment says (PTXAS, NVDISASM), on PATH, or
/// in CUDA's folder (CUDA_HOME, or /usr/local/cuda).
llvm::Expected<Assembler> findAssembler();

/// Finds ptxas alone.
llvm::Expected<std::string> findPtxas();

/// The machine code that `ptxas` makes of the kernels of `text` for `chip`, as
/// an image that a driver loads.
llvm::Expected<std::string>
makeCubin(llvm::StringRef ptxas, llvm::StringRef text, llvm::StringRef chip);

/// What the machine has of the kernels of `text` for `chip`.
llvm::Expected<llvm::StringMap<gpu::SASSKernel>>
disassemble(const Assembler &assembler, llvm::StringRef text,
            llvm::StringRef chip);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_ASSEMBLER_H

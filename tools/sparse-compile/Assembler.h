// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Has NVIDIA's tools make machine code of PTX, and print it.

#ifndef BSR_TOOLS_SPARSE_COMPILE_ASSEMBLER_H
#define BSR_TOOLS_SPARSE_COMPILE_ASSEMBLER_H

#include "bsr/Codegen/GPU/Machine.h"

namespace mlir::bsr {

/// The paths of NVIDIA's assembler and disassembler.
struct Assembler {
  std::string ptxas, nvdisasm;
};

/// Finds both, each where the environment says (PTXAS, NVDISASM), on PATH, or
/// in CUDA's folder (CUDA_HOME, or /usr/local/cuda).
llvm::Expected<Assembler> findAssembler();

/// Assembles the kernels of `text` for `chip`.
llvm::Expected<llvm::StringMap<MachineKernel>>
assemble(const Assembler &assembler, llvm::StringRef text,
         llvm::StringRef chip);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_ASSEMBLER_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What NVIDIA's assembler makes of kernels in PTX.

#ifndef BSR_CODEGEN_GPU_PREDICTION_SASS_H
#define BSR_CODEGEN_GPU_PREDICTION_SASS_H

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <optional>
#include <vector>

namespace ptx {
struct Kernel;
} // namespace ptx

namespace mlir::bsr::gpu {

/// An instruction of a program, as far as where it jumps and its kind are
/// concerned.
struct FlowInstruction {
  /// True of instructions that the assembler makes one of: of matrices, and
  /// those that reach memory or other lanes.
  bool isFixed = false;
  bool isLast = false;            ///< nothing follows it: a jump, an exit
  std::optional<unsigned> target; ///< of a branch: the number of an instruction
};

struct SASSKernel {
  std::vector<FlowInstruction> instructions;
  unsigned registers = 0;    ///< a thread
  unsigned spilledBytes = 0; ///< a thread, that it stores and loads
};

/// Reads the kernels in what `nvdisasm -c` prints of a cubin, and what `ptxas
/// -v` says that they need. Fails where one of both does not know a kernel.
llvm::Expected<llvm::StringMap<SASSKernel>>
parseMachine(llvm::StringRef disassembly, llvm::StringRef needs);

/// How many machine instructions there are for one of PTX: for as many fixed
/// ones, so that a loop which the assembler unrolled in part is no longer than
/// it was. Counted in the loops, where both have as many of them, or else in
/// the whole text.
double getMachineRatio(const ::ptx::Kernel &kernel, const SASSKernel &machine);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_PREDICTION_SASS_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long the kernels of a step take at least, by the model.

#ifndef BSR_CODEGEN_GPU_PREDICTKERNELS_H
#define BSR_CODEGEN_GPU_PREDICTKERNELS_H

#include "bsr/Codegen/GPU/Machine.h"
#include "bsr/Codegen/GPU/Profile.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::bsr {

/// What the assembler made of a kernel.
struct MachineUse {
  unsigned registers, spilledBytes; ///< a thread
  double ratio;                     ///< machine instructions for one of PTX
};

/// One kernel, all launches of which do the same.
struct KernelPrediction {
  std::string name;
  int64_t launches = 0; ///< in a step, or in the function of its plans
  bool isPlan = false;  ///< it makes plans of patterns, once an update
  Profile profile;      ///< of one launch
  Prediction prediction;
  std::optional<MachineUse> machine;
};

/// The text of PTX of the kernels of `module`, which `bsr-to-gpu` has lowered.
/// An error, which is emitted, if it has none.
FailureOr<StringRef> getPTX(ModuleOp module);

/// Predicts the kernels of `module`, in the order of their first launches
/// (those of plans come before those of their step), for the chip that it is
/// for. The arrays of its patterns are taken to be those of random patterns
/// with as many blocks as they have slots. With `machine`, what is issued and
/// computed is not the instructions of PTX but as many as there are of the
/// machine for these. Errors are emitted.
FailureOr<SmallVector<KernelPrediction, 0>>
predictKernels(ModuleOp module, const ModelParameters &parameters,
               const llvm::StringMap<MachineKernel> *machine = nullptr);

/// Prints a table, the kernels first that take longest in all, and the total;
/// what makes plans of patterns apart.
void print(ArrayRef<KernelPrediction> kernels, const Chip &chip,
           llvm::raw_ostream &os);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_GPU_PREDICTKERNELS_H

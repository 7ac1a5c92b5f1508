// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long the kernels of a step take at least, by the model.

#ifndef BSR_CODEGEN_GPU_PREDICTION_PREDICTKERNELS_H
#define BSR_CODEGEN_GPU_PREDICTION_PREDICTKERNELS_H

#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"
#include "bsr/Codegen/GPU/Prediction/SASS.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::bsr::gpu {

/// What the assembler made of a kernel.
struct MachineUse {
  unsigned registers, spilledBytes; ///< a thread
  double ratio;                     ///< machine instructions for one of PTX
};

/// One kernel, all launches of which do the same.
struct KernelPrediction {
  enum When {
    Step,
    Plans, ///< it makes plans of patterns, once an update
    Update ///< it is the runtime's, and updates patterns
  };
  std::string name;
  int64_t launches = 0; ///< in a step, in the function of its plans, or update
  When when = Step;
  KernelWork work;            ///< of one launch
  uint64_t countedBlocks = 0; ///< of threads, that ran to count it
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
               const llvm::StringMap<SASSKernel> *machine = nullptr);

/// Predicts the kernels of an update of all patterns of `module` that can
/// change, which prunes and regrows `share` of the blocks: by scores if the
/// step has any, else at random. Errors are emitted.
FailureOr<SmallVector<KernelPrediction, 0>>
predictUpdate(ModuleOp module, double share, const ModelParameters &parameters);

/// Prints a table, the kernels first that take longest in all, and the total;
/// what makes plans of patterns, and what updates these, apart.
void print(ArrayRef<KernelPrediction> kernels, const Chip &chip,
           llvm::raw_ostream &os);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_PREDICTION_PREDICTKERNELS_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of windows that thread blocks leave in memory, and the launch that adds
// them up.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_STREAMKSUMS_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_STREAMKSUMS_H

#include "SDDMMTile.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"
#include "bsr/Codegen/GPU/Epilogue/Epilogue.h"

namespace mlir::bsr::gpu {

/// The sums of a block.
FragmentGrid getFragments(const SDDMMShape &shape);

/// Stores sums of fragments in `partialSums`, memory as `StreamKSums` has it,
/// from fragment `fragment` on of the block at `at`: what has it, its window
/// there, and its number in that.
void storePartialSums(BlockBuilder &b, Value partialSums, ValueRange at,
                      Value fragment, ValueRange sums);

/// The sums of blocks of which several thread blocks have steps.
struct StreamKSums {
  const SDDMMShape &shape;
  const SDDMMTile &tile;

  /// Memory for those of each thread block, which has steps of several windows:
  /// `[grid, windows, blocks, sums of a lane / 4, lanes, 4]`.
  MemRefType getType(MLIRContext *context) const;
  /// Emits the launch that adds them up, in the order of steps, and goes on
  /// with them by `epilogue`, or, if that is null, stores them to `values`.
  /// `scratch` are the arrays of the windows, and the memory of sums.
  void emit(OpBuilder &b, const KernelBody &kernel, SDDMMOp op,
            ValueRange scratch, const StoredRows &values,
            Epilogue *epilogue) const;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_STREAMKSUMS_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How attention's matrices lie in shared memory.

#ifndef BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONTILE_H
#define BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONTILE_H

#include "AttentionOperands.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"

namespace mlir::bsr::gpu {

/// Some tokens of a matrix in shared memory, where it lies as in global memory.
struct AttentionTile {
  const AttentionMatrix *matrix;
  int64_t tokens;

  int64_t getRows() const {
    return matrix->isFeatureLast ? tokens : matrix->getPaddedFeatures();
  }
  /// Of a row.
  int64_t getLength() const {
    return matrix->isFeatureLast ? matrix->getPaddedFeatures() : tokens;
  }
  int64_t getPitch() const {
    return WarpMultiplier::getPitch(getLength(), elementBytes,
                                    /*isInnerLast=*/true);
  }
  int64_t getBytes() const { return getRows() * getPitch(); }
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONTILE_H

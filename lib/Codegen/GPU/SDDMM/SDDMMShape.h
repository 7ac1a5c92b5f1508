// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sizes of stored blocks of products of activations.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_SDDMMSHAPE_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_SDDMMSHAPE_H

#include "bsr/Codegen/GPU/Core/BlockProduct.h"

namespace mlir::bsr::gpu {

/// The sizes of a `bsr.sddmm`.
struct SDDMMShape {
  static SDDMMShape get(const BlockProduct &product) {
    return {product.pattern, product.activations[0], product.activations[1],
            product.getElementBytes(), product.getResultBytes()};
  }

  PatternType pattern;
  Activations rows, cols;
  /// Of an element of activations, and of the result.
  int64_t elementBytes, outputBytes;

  int64_t getBlockRows() const { return pattern.getBlockRows(); }
  int64_t getBlockCols() const { return pattern.getBlockCols(); }
  int64_t getBlockElements() const { return getBlockRows() * getBlockCols(); }
  double getDensity() const {
    return double(pattern.getSlots()) /
           (double(pattern.getGridRows()) * double(pattern.getGridCols()));
  }
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_SDDMMSHAPE_H

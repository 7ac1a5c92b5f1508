// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations on tensor cores.

#ifndef BSR_LIB_CODEGEN_GPU_SAMPLEDPRODUCT_H
#define BSR_LIB_CODEGEN_GPU_SAMPLEDPRODUCT_H

#include "Product.h"
#include "TensorCores.h"

namespace mlir::bsr {

/// A `bsr.sddmm` that tensor cores compute: 16-bit elements of one type, sums
/// in f32, blocks of 16, 32 or 64 rows and columns, tokens last.
class SampledProduct : public Product {
public:
  /// The product that `op` is, if it is one that `chip` runs here.
  static std::optional<SampledProduct> match(Operation *op, GPUAttr chip);

  SmallVector<MemRefType> getScratch() override { return {}; }
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class SampledProductEmitter;

  /// Blocks of one block row that a block of threads computes.
  int64_t getBlocks() const { return blockThreads / 32 * warpBlocks; }
  /// Bytes of a stage: the rows of the block row, and the columns of its
  /// blocks.
  int64_t getStageBytes() const;

  SDDMMOp op;
  PatternType pattern;
  Activations rows, cols;
  /// Blocks of a warp; tokens of a stage, and stages.
  int64_t warpBlocks, tokens, stages;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_SAMPLEDPRODUCT_H

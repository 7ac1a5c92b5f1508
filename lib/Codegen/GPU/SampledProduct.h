// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations on tensor cores.

#ifndef BSR_LIB_CODEGEN_GPU_SAMPLEDPRODUCT_H
#define BSR_LIB_CODEGEN_GPU_SAMPLEDPRODUCT_H

#include "Product.h"
#include "SampledWalk.h"

namespace mlir::bsr {

/// A `bsr.sddmm` that tensor cores compute: 16-bit elements of one type, sums
/// in f32, blocks of 4 to 64 rows and columns, tokens last; or f32 rounded to
/// tf32 in blocks of 16 to 64.
class SampledProduct : public Product {
public:
  /// The product that `op` is, if it is one that `chip` runs here.
  static std::optional<SampledProduct> match(Operation *op, GPUAttr chip);

  SmallVector<MemRefType> getScratch() override { return {}; }
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class SampledProductEmitter;
  friend class SmallSampledProductEmitter;

  /// Fragments have columns of several blocks as rows.
  bool isSmall() const {
    return tile.pattern.getBlockRows() < fragmentRows ||
           tile.pattern.getBlockCols() < fragmentRows;
  }
  /// Emits what a thread does where it `isSmall`.
  void emitSmall(KernelBody &kernel, BlockBuilder &b);

  SDDMMOp op;
  SampledTile tile;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_SAMPLEDPRODUCT_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations on tensor cores, of which a fragment
// has several.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_SMALLSDDMM_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_SMALLSDDMM_H

#include "SDDMMWalk.h"
#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// A `bsr.sddmm` that tensor cores compute: 16-bit elements of one type, sums
/// in f32, blocks of 4 to 64 rows and columns, of which one is below 16, tokens
/// last.
class SmallSDDMM : public Product {
public:
  /// The product of `operands`, if it is one that `chip` runs here.
  static std::optional<SmallSDDMM> match(const BlockProduct &operands,
                                         GPUAttr chip);

  SmallVector<MemRefType> getScratch() override { return {}; }
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class SmallSDDMMEmitter;

  SDDMMOp op;
  SDDMMTile tile;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_SMALLSDDMM_H

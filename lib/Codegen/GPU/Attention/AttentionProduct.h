// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention on tensor cores.

#ifndef BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONPRODUCT_H
#define BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONPRODUCT_H

#include "AttentionBlock.h"
#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// A `bsr.attention` of 16-bit elements, whose scores stay in registers.
class AttentionProduct : public Product {
public:
  /// The attention of `operands`, if it is one that `chip` runs here.
  static std::optional<AttentionProduct>
  match(const AttentionOperands &operands, GPUAttr chip);

  SmallVector<MemRefType> getScratch() override { return {}; }
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  explicit AttentionProduct(const AttentionOperands &operands)
      : operands(operands) {}

  AttentionOperands operands;
  /// Stages of keys and values.
  int64_t stages = 0;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONPRODUCT_H

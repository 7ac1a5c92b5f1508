// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients of attention on tensor cores.

#ifndef BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONGRADIENT_H
#define BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONGRADIENT_H

#include "AttentionBlock.h"
#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// A `bsr.attention_grad` of 16-bit elements, as three launches: what is known
/// of the rows; the gradients of keys and values, by blocks of threads that
/// have keys; those of queries, by others that have queries.
class AttentionGradient : public Product {
public:
  /// The gradient of `operands`, if it is one that `chip` runs here.
  static std::optional<AttentionGradient>
  match(const AttentionOperands &operands, GPUAttr chip);

  /// The lines of queries of the pattern: those of keys are walked.
  std::optional<PatternPlan> getPlan() override;
  /// Of each row its maximum, the logarithm of its sum, and what all gradients
  /// of its scores are less by, `sum(dy * y)`: `[3, batch..., queries]`.
  SmallVector<MemRefType> getScratch() override;
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  explicit AttentionGradient(const AttentionOperands &operands)
      : operands(operands) {}

  LogicalResult emitStatistics(OpBuilder &b, KernelBody &kernel, Value scratch);

  AttentionOperands operands;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONGRADIENT_H

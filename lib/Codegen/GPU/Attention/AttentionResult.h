// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where a result of an attention is stored.

#ifndef BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONRESULT_H
#define BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONRESULT_H

#include "AttentionOperands.h"
#include "bsr/Codegen/Common/KernelTarget.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"

namespace mlir::bsr::gpu {

/// A result of an attention, or null if it is not stored: its rows are those
/// of tokens, or, where these lie side by side, those of features.
struct AttentionResult {
  /// What a launch stores to is made outside of it.
  static AttentionResult get(OpBuilder &b, const KernelBody &kernel,
                             const AttentionTensor &tensor,
                             unsigned featureDim);

  explicit operator bool() const { return buffer != nullptr; }

  AttentionTensor tensor;
  unsigned featureDim;
  Value buffer;
  /// The buffer in pairs of features, if these lie side by side.
  std::optional<StoredRows> pairs;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_ATTENTION_ATTENTIONRESULT_H

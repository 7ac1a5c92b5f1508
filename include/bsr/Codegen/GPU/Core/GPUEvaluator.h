// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An evaluator for threads.

#ifndef BSR_CODEGEN_GPU_CORE_GPUEVALUATOR_H
#define BSR_CODEGEN_GPU_CORE_GPUEVALUATOR_H

#include "bsr/Codegen/Common/Evaluator.h"

namespace mlir::bsr::gpu {

/// An evaluator whose points are those of parallel loops, one point too: the
/// host has none.
class GPUEvaluator : public Evaluator {
public:
  using Evaluator::Evaluator;

  void forEach(ArrayRef<int64_t> extents,
               llvm::function_ref<void(ArrayRef<Index>)> body) override;

  /// That of a whole vector, if it begins a multiple of its size behind the
  /// begin of a buffer, which is one of 64 bytes or more.
  std::optional<int64_t> getAlignment(Value memref,
                                      ArrayRef<Index> at) const override;
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_GPUEVALUATOR_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products on arithmetic units.

#ifndef BSR_LIB_CODEGEN_GPU_DENSE_LANEDENSEPRODUCT_H
#define BSR_LIB_CODEGEN_GPU_DENSE_LANEDENSEPRODUCT_H

#include "DenseWalk.h"

namespace mlir::bsr::gpu {

/// A dense product of f32 whose sums lanes keep in registers.
class LaneDenseProduct : public DenseTileProduct {
public:
  /// The product of `operands`, if it is one of f32 and takes less time so than
  /// one element a thread, as the model has it.
  static std::optional<LaneDenseProduct> match(const DenseOperands &operands,
                                               GPUAttr chip);

private:
  friend class LaneDenseProductEmitter;

  void emitBlock(KernelBody &kernel, const StoredRows &result,
                 BlockBuilder &b) override;
  int64_t getStoredLength() const override;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_DENSE_LANEDENSEPRODUCT_H

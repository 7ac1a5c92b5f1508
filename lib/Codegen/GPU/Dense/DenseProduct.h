// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products on tensor cores.

#ifndef BSR_LIB_CODEGEN_GPU_DENSE_DENSEPRODUCT_H
#define BSR_LIB_CODEGEN_GPU_DENSE_DENSEPRODUCT_H

#include "DenseWalk.h"

namespace mlir::bsr::gpu {

/// A dense product by warps on tensor cores, of 16-bit elements or of f32
/// rounded to tf32.
class DenseProduct : public DenseTileProduct {
public:
  /// The product of `operands`, if it is one that `chip` runs here.
  static std::optional<DenseProduct> match(const DenseOperands &operands,
                                           GPUAttr chip);

private:
  friend class DenseProductEmitter;

  void emitBlock(KernelBody &kernel, const StoredRows &result,
                 BlockBuilder &b) override;
  int64_t getStoredLength() const override { return 2; }
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_DENSE_DENSEPRODUCT_H

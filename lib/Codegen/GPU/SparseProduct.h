// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix on tensor cores.

#ifndef BSR_LIB_CODEGEN_GPU_SPARSEPRODUCT_H
#define BSR_LIB_CODEGEN_GPU_SPARSEPRODUCT_H

#include "PlannedProduct.h"
#include "ProductTile.h"

namespace mlir::bsr {

/// A `bsr.spmm` that tensor cores can compute: 16-bit elements of one type,
/// sums in f32, blocks of 4 to 64 rows and columns, tokens last.
struct SparseOperands {
  static std::optional<SparseOperands> match(Operation *root);

  SpMMOp op;
  ProductShape shape;
};

/// Such a product by warps.
class SparseProduct : public PlannedProduct {
public:
  /// The product that `op` is, if it is one that `chip` runs here.
  static std::optional<SparseProduct> match(Operation *op, GPUAttr chip);

  std::optional<ResultSpace> getSpace() override;
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class SparseProductEmitter;

  ProductTile tile;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_SPARSEPRODUCT_H

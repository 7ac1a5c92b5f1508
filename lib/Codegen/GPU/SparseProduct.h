// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix on tensor cores.

#ifndef BSR_LIB_CODEGEN_GPU_SPARSEPRODUCT_H
#define BSR_LIB_CODEGEN_GPU_SPARSEPRODUCT_H

#include "LinePlan.h"
#include "ProductTile.h"
#include "bsr/Codegen/Common/KernelTarget.h"

namespace mlir::bsr {

/// A `bsr.spmm` that tensor cores can compute: 16-bit elements of one type, sums
/// in f32, blocks of 16, 32 or 64 rows and columns, tokens last.
struct SparseOperands {
  static std::optional<SparseOperands> match(const ClusterPlan &plan);

  SpMMOp op;
  ProductShape shape;
};

/// Such a product by warps.
class SparseProduct {
public:
  /// The product that `plan` is, if it is one that `chip` runs here.
  static std::optional<SparseProduct> match(const ClusterPlan &plan,
                                            GPUAttr chip);

  /// The memory for the plan of its pattern.
  SmallVector<MemRefType> getScratch();
  void emit(OpBuilder &b, KernelBody &kernel);

private:
  friend class SparseProductEmitter;

  SpMMOp op;
  ProductShape shape;
  ProductTile tile;
  LinePlan plan;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_SPARSEPRODUCT_H

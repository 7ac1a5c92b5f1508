// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix on tensor cores.

#ifndef BSR_LIB_CODEGEN_GPU_SPARSEPRODUCT_H
#define BSR_LIB_CODEGEN_GPU_SPARSEPRODUCT_H

#include "LinePlan.h"
#include "TensorCores.h"
#include "bsr/Codegen/Common/KernelTarget.h"

namespace mlir::bsr {

/// What a block of threads computes of a product at a time, and what it keeps
/// in shared memory.
struct ProductTile {
  /// Of the block of threads and of a warp: lines of the matrix, tokens.
  int64_t lines, tokens, warpLines, warpTokens;
  /// Of a stage: positions with activations, and blocks of the matrix.
  int64_t slabs, blocks;
  int64_t stages;
};

/// A `bsr.spmm` that tensor cores compute: 16-bit elements of one type, sums in
/// f32, blocks of 16, 32 or 64 rows and columns, tokens last.
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
  PatternType pattern;
  View view;
  /// Outputs and inputs of a block.
  int64_t outBlock, inBlock;
  Activations activations;
  ProductTile tile;
  LinePlan plan;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_SPARSEPRODUCT_H

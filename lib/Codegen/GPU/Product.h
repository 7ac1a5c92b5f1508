// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products that tensor cores compute.

#ifndef BSR_LIB_CODEGEN_GPU_PRODUCT_H
#define BSR_LIB_CODEGEN_GPU_PRODUCT_H

#include "Epilogue.h"

namespace mlir::bsr {

/// A product that tensor cores compute, and what they do with its sums. A kind
/// of product is a class with a static function `match`, which `matchProduct`
/// tries.
class Product {
public:
  virtual ~Product() = default;

  /// The plan of its pattern that its launches follow, if they follow one.
  virtual std::optional<PatternPlan> getPlan() { return std::nullopt; }
  /// The memory that its launches need, that of the epilogue included.
  virtual SmallVector<MemRefType> getScratch() = 0;
  /// Failure, which was reported, if something could not be emitted.
  virtual LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                             ValueRange scratch) = 0;
  /// Its result, if its sums can go through an epilogue.
  virtual std::optional<ResultSpace> getSpace() { return std::nullopt; }
  /// True if its result may be a part of a buffer whose rows, along the last
  /// dimension, are as long.
  virtual bool acceptsPieces() { return false; }
  /// True if its epilogue may write results over what it reads at the same
  /// place: nothing else reads there.
  virtual bool acceptsUpdates() { return false; }

  std::optional<Epilogue> epilogue;
};

/// The product that `op` is, in a step or in a cluster; null if it is none that
/// `chip` computes so.
std::unique_ptr<Product> matchProduct(Operation *op, GPUAttr chip);
/// The product of `plan`, alone or with its epilogue; null if it is none.
std::unique_ptr<Product> matchProduct(const ClusterPlan &plan, GPUAttr chip);

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_PRODUCT_H

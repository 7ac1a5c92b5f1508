// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products that tensor cores compute.

#include "Product.h"
#include "AttentionGradient.h"
#include "AttentionProduct.h"
#include "DenseProduct.h"
#include "LaneDenseProduct.h"
#include "LaneProduct.h"
#include "LaneSampledProduct.h"
#include "SampledProduct.h"
#include "SmallSampledProduct.h"
#include "WarpgroupProduct.h"
#include "bsr/Dialect/Attention.h"

using namespace mlir;
using namespace mlir::bsr;

/// `op` as a product of the first of `Kinds` that it is.
template <typename... Kinds>
static std::unique_ptr<Product> matchFirst(Operation *op, GPUAttr chip) {
  std::unique_ptr<Product> found;
  auto isKind = [&](auto product) {
    using Kind = typename decltype(product)::value_type;
    if (product)
      found = std::make_unique<Kind>(std::move(*product));
    return found != nullptr;
  };
  (void)(isKind(Kinds::match(op, chip)) || ...);
  return found;
}

std::unique_ptr<Product> bsr::matchProduct(Operation *op, GPUAttr chip) {
  // Launches know of no batches of values, no keys that heads share, no factor
  // and no trained bias.
  auto isBatched = [](auto product) {
    return product && product.getNumBatchDims() != 0;
  };
  if (isBatched(dyn_cast<SpMMOp>(op)) || isBatched(dyn_cast<SDDMMOp>(op)))
    return nullptr;
  std::optional<Attention> attention = getAttention(op);
  if (attention && !attention->isPlain())
    return nullptr;
  return matchFirst<WarpgroupProduct, SparseProduct, LaneProduct,
                    SampledProduct, SmallSampledProduct, LaneSampledProduct,
                    DenseProduct, LaneDenseProduct, AttentionProduct,
                    AttentionGradient>(op, chip);
}

std::unique_ptr<Product> bsr::matchProduct(const ClusterPlan &plan,
                                           GPUAttr chip) {
  if (!plan.pieces.empty())
    return nullptr;
  if (!plan.chain)
    return plan.roots.size() == 1 ? matchProduct(plan.roots.front(), chip)
                                  : nullptr;
  Value result = plan.chain->getProduct();
  std::unique_ptr<Product> product =
      result ? matchProduct(result.getDefiningOp(), chip) : nullptr;
  std::optional<ResultSpace> space;
  if (product)
    space = product->getSpace();
  if (!space)
    return nullptr;
  product->epilogue = Epilogue::match(*plan.chain, *space);
  return product->epilogue ? std::move(product) : nullptr;
}

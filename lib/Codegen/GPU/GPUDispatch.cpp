// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which kernel computes an operation or a cluster.

#include "GPUDispatch.h"
#include "bsr/Codegen/GPU/Attention/MatchAttention.h"
#include "bsr/Codegen/GPU/Dense/DenseProduct.h"
#include "bsr/Codegen/GPU/SDDMM/SDDMM.h"
#include "bsr/Codegen/GPU/SpMM/SpMM.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::unique_ptr<Product> bsr::gpu::matchProduct(Operation *op, GPUAttr target) {
  if (isa<SpMMOp>(op))
    return matchSpMM(op, target);
  if (isa<SDDMMOp>(op))
    return matchSDDMM(op, target);
  if (isa<AttentionOp, AttentionGradOp>(op))
    return matchAttention(op, target);
  return matchDense(op, target);
}

std::unique_ptr<Product> bsr::gpu::matchProduct(const ClusterPlan &plan,
                                                GPUAttr target) {
  if (!plan.pieces.empty())
    return nullptr;
  if (!plan.chain)
    return plan.roots.size() == 1 ? matchProduct(plan.roots.front(), target)
                                  : nullptr;
  Value result = plan.chain->getProduct();
  std::unique_ptr<Product> product =
      result ? matchProduct(result.getDefiningOp(), target) : nullptr;
  std::optional<ResultSpace> space;
  if (product)
    space = product->getSpace();
  if (!space)
    return nullptr;
  product->epilogue = Epilogue::match(*plan.chain, *space);
  return product->epilogue ? std::move(product) : nullptr;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells kinds of work apart and counts floating-point operations.

#include "bsr/Analysis/Work.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

/// The kinds of work, the one that a cluster is called by first.
static constexpr StringRef kinds[] = {
    "spmm",           "spmm_transposed", "sddmm",       "attention",
    "attention_grad", "block_scores",    "dense",       "scatter",
    "gather",         "reduction",       "elementwise", "copy",
    "other"};

StringRef bsr::getWorkKind(Operation *op) {
  if (auto kernel = dyn_cast<KernelOpInterface>(op))
    return kernel.getWorkKind();
  if (isa<tensor::ConcatOp>(op))
    return "copy";
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic)
    return "other";
  if (linalg::isaContractionOpInterface(generic))
    return "dense";
  if (!generic.getBody()->getOps<tensor::ExtractOp>().empty())
    return "gather";
  if (generic.getNumReductionLoops())
    return "reduction";
  return llvm::hasSingleElement(*generic.getBody()) ? "copy" : "elementwise";
}

int64_t bsr::getFlops(Operation *op) {
  if (auto kernel = dyn_cast<KernelOpInterface>(op))
    return kernel.getFlops();
  auto product = dyn_cast<linalg::LinalgOp>(op);
  if (!product || !linalg::isaContractionOpInterface(product))
    return 0;
  int64_t flops = 2;
  for (int64_t range : product.getStaticLoopRanges())
    flops *= range;
  return flops;
}

void bsr::setWork(ClusterOp cluster, ArrayRef<Operation *> members) {
  Builder b(cluster.getContext());
  StringRef kind = kinds[std::size(kinds) - 1];
  int64_t flops = 0;
  for (Operation *op : members) {
    StringRef other = getWorkKind(op);
    if (llvm::find(kinds, other) < llvm::find(kinds, kind))
      kind = other;
    flops += getFlops(op);
  }
  attrs::kind.set(cluster, b.getStringAttr(kind));
  if (flops)
    attrs::flops.set(cluster, b.getI64IntegerAttr(flops));
}

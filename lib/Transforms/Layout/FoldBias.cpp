// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets sums of sparse products start from the bias that is added to them.

#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Layout/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRFOLDBIAS
#include "bsr/Transforms/Layout/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// True if `op` adds its two inputs, element by element, and does nothing else.
static bool isSumOfTwo(linalg::GenericOp op) {
  if (op.getNumDpsInputs() != 2 || op->getNumResults() != 1 ||
      op.getNumReductionLoops() != 0)
    return false;
  Block *body = op.getBody();
  auto add =
      body->getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!add || !llvm::hasSingleElement(body->without_terminator()))
    return false;
  Value a = body->getArgument(0), b = body->getArgument(1);
  return (add.getLhs() == a && add.getRhs() == b) ||
         (add.getLhs() == b && add.getRhs() == a);
}

/// The bias that `op` adds to operand number `product`, the result of `spmm`: a
/// value for each feature, known when the product is computed; or null.
static Value getBias(linalg::GenericOp op, unsigned product, SpMMOp spmm) {
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  Value bias = op->getOperand(1 - product);
  auto type = dyn_cast<RankedTensorType>(bias.getType());
  if (!type || type.getRank() != 1 || maps[product] != maps[2] ||
      !maps[product].isProjectedPermutation() ||
      maps[1 - product].getResult(0) !=
          maps[product].getResult(spmm.getFeatureDim()))
    return {};
  // Halves are rounded once more where they are added.
  Type element = type.getElementType();
  if (element != spmm.getY().getType().getElementType() ||
      element != getElementTypeOrSelf(op->getResult(0).getType()) ||
      !(element.isF32() || element.isF64()))
    return {};
  Operation *producer = bias.getDefiningOp();
  return !producer || (producer->getBlock() == spmm->getBlock() &&
                       producer->isBeforeInBlock(spmm))
             ? bias
             : Value();
}

/// spmm(p, v, x) + b -> spmm(p, v, x, b)
static bool fold(linalg::GenericOp op) {
  if (!isSumOfTwo(op))
    return false;
  for (unsigned product : {0, 1}) {
    auto spmm = op->getOperand(product).getDefiningOp<SpMMOp>();
    if (!spmm || spmm.getBias() || !spmm->hasOneUse())
      continue;
    if (Value bias = getBias(op, product, spmm)) {
      spmm.getBiasMutable().assign(bias);
      op->getResult(0).replaceAllUsesWith(spmm.getY());
      op.erase();
      return true;
    }
  }
  return false;
}

namespace {
struct FoldBias : bsr::impl::BSRFoldBiasBase<FoldBias> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<linalg::GenericOp> ops;
    getOperation().walk([&](linalg::GenericOp op) { ops.push_back(op); });
    for (linalg::GenericOp op : ops)
      numFolded += fold(op);
  }
};
} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Combines partial reductions.

#include "bsr/Codegen/Common/Combine.h"
#include "bsr/Analysis/ComputedOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;

static Operation *getSumCombiner(OpResult sum) {
  return bsr::getCombiner(cast<linalg::GenericOp>(sum.getOwner()),
                          sum.getResultNumber());
}

Value bsr::createNeutral(Evaluator &e, OpResult sum) {
  Operation *combiner = getSumCombiner(sum);
  TypedAttr neutral = *arith::getNeutralElement(combiner);
  // Adding a negative zero is no operation, adding a positive one is.
  if (isa<arith::AddFOp>(combiner))
    neutral = e.b.getFloatAttr(neutral.getType(), -0.0);
  return e.broadcast(arith::ConstantOp::create(e.b, e.loc, neutral));
}

Value bsr::combine(Evaluator &e, OpResult sum, Value a, Value b) {
  return vector::makeArithReduction(
      e.b, e.loc, *linalg::getCombinerOpKind(getSumCombiner(sum)), a, b);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Results of attention in the type that is read of them: half of the memory,
// and no operation that rounds.

#include "NarrowAttention.h"
#include "bsr/Analysis/Decisions.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::bsr;

/// The tensor that `op` converts by `CastOp`, if it does nothing else; or null.
template <typename CastOp>
static Value getConverted(Operation *op) {
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  if (!generic || generic.getNumDpsInputs() != 1 ||
      generic->getNumResults() != 1)
    return {};
  SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
  Block *body = generic.getBody();
  auto cast = body->getTerminator()->getOperand(0).getDefiningOp<CastOp>();
  if (maps[0] != maps[1] || !maps[0].isPermutation() || !cast ||
      cast.getIn() != body->getArgument(0))
    return {};
  return generic.getDpsInputs().front();
}

/// Makes `result` what all round it to, if they do.
static void narrow(OpResult result) {
  auto type = cast<RankedTensorType>(result.getType());
  SmallVector<Operation *> roundings;
  for (OpOperand &use : result.getUses()) {
    Operation *user = use.getOwner();
    auto gradient = dyn_cast<AttentionGradOp>(user);
    if (gradient && use == gradient.getYMutable())
      continue;
    if (!getConverted<arith::TruncFOp>(user) ||
        (!roundings.empty() &&
         user->getResultTypes() != roundings.front()->getResultTypes()))
      return;
    roundings.push_back(user);
  }
  if (roundings.empty() || !decide("bsr-narrow-attention", result.getOwner()))
    return;
  result.setType(
      type.clone(getElementTypeOrSelf(roundings.front()->getResultTypes()[0])));
  for (Operation *rounding : roundings) {
    rounding->getResult(0).replaceAllUsesWith(result);
    rounding->erase();
  }
}

/// Replaces `op`, if it rounds what was widened, by that.
static void foldRounding(Operation *op) {
  Value wide = getConverted<arith::TruncFOp>(op);
  SmallVector<Operation *> views;
  while (wide &&
         isa_and_present<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(
             wide.getDefiningOp())) {
    views.push_back(wide.getDefiningOp());
    wide = wide.getDefiningOp()->getOperand(0);
  }
  Value narrow =
      wide ? getConverted<arith::ExtFOp>(wide.getDefiningOp()) : Value();
  Type element = getElementTypeOrSelf(op->getResult(0).getType());
  if (!narrow || getElementTypeOrSelf(narrow.getType()) != element)
    return;
  OpBuilder b(op);
  for (Operation *view : llvm::reverse(views)) {
    IRMapping mapping;
    mapping.map(view->getOperand(0), narrow);
    Operation *copy = b.clone(*view, mapping);
    copy->getResult(0).setType(
        cast<RankedTensorType>(view->getResult(0).getType()).clone(element));
    narrow = copy->getResult(0);
  }
  op->getResult(0).replaceAllUsesWith(narrow);
}

void bsr::narrowAttention(Block &block) {
  for (Operation &op : block) {
    if (isa<AttentionOp>(op))
      narrow(op.getResult(0));
    else if (isa<AttentionGradOp>(op))
      llvm::for_each(op.getResults(), narrow);
  }
  for (Operation &op : block)
    if (op.getNumResults() == 1)
      foldRounding(&op);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Folds transposes and broadcasts into the maps of what reads them. (Upstream's
// fusion of element-wise operations takes what computes along as well, which
// the clusters decide here.)

#include "bsr/Analysis/ElementWise.h"
#include "bsr/Transforms/Layout/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRFOLDCOPIES
#include "bsr/Transforms/Layout/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// If `op` only moves elements (a transpose, a broadcast), the operand that it
/// moves.
static OpOperand *getCopied(linalg::GenericOp op) {
  bool moves = op.getNumReductionLoops() == 0 &&
               op.getBody()->without_terminator().empty() &&
               op.getIndexingMapsArray().back().isPermutation();
  return moves ? getYieldedInput(op) : nullptr;
}

/// generic(copy(x)) -> generic(x) with the composed map
static int64_t foldCopies(linalg::GenericOp op) {
  int64_t count = 0;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  for (OpOperand *input : op.getDpsInputOperands()) {
    while (auto producer = input->get().getDefiningOp<linalg::GenericOp>()) {
      OpOperand *source = getCopied(producer);
      if (!source)
        break;
      SmallVector<AffineMap> from = producer.getIndexingMapsArray();
      AffineMap &map = maps[input->getOperandNumber()];
      AffineMap composed = from[source->getOperandNumber()].compose(
          inversePermutation(from.back()).compose(map));
      // The loops' extents must still follow from the operands.
      SmallVector<AffineMap> candidate(maps);
      candidate[input->getOperandNumber()] = composed;
      if (!inversePermutation(concatAffineMaps(candidate, op.getContext())))
        break;
      map = composed;
      input->set(source->get());
      ++count;
    }
  }
  op.setIndexingMapsAttr(OpBuilder(op).getAffineMapArrayAttr(maps));
  return count;
}

namespace {
struct FoldCopies : bsr::impl::BSRFoldCopiesBase<FoldCopies> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isDeclaration() || !func.getBody().hasOneBlock())
      return;
    for (auto op : func.getBody().front().getOps<linalg::GenericOp>())
      if (op.hasPureTensorSemantics())
        numFolded += foldCopies(op);
  }
};
} // namespace

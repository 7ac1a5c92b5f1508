// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adds the scores of all blocks of each weight's gradient to a step.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/Rows.h"
#include "bsr/Transforms/Sparsity/Passes.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSCOREBLOCKS
#include "bsr/Transforms/Sparsity/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The norms of all blocks of what `gradient` has the stored blocks of.
static Value createScores(OpBuilder &b, Operation *gradient, Norm norm) {
  auto pattern = cast<PatternType>(gradient->getOperand(0).getType());
  auto type = RankedTensorType::get(
      {pattern.getGridRows(), pattern.getGridCols()}, b.getF32Type());
  if (auto rows = dyn_cast<ScatterRowsOp>(gradient))
    return ScoreRowsOp::create(b, rows.getLoc(), type, norm, rows.getIndices(),
                               rows.getUpdates(), pattern.getBlockRows(),
                               pattern.getBlockCols(), rows.getTranspose(),
                               rows.getFeatureDim());
  auto product = cast<SDDMMOp>(gradient);
  return BlockScoresOp::create(b, product.getLoc(), type, norm, product.getA(),
                               product.getB(), product.getFeatureDim());
}

namespace {
struct ScoreBlocks : bsr::impl::BSRScoreBlocksBase<ScoreBlocks> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    std::optional<Norm> known = symbolizeNorm(norm);
    if (!known) {
      step.emitError("expected norm to be l1, l2 or linf, but got '")
          << norm << "'";
      return signalPassFailure();
    }
    if (failed(getReturn(step)))
      return signalPassFailure();
    for (BlockArgument argument : step.getArguments())
      if (isa<PatternType>(argument.getType()))
        addScores(step, argument, *known);
  }

  /// Makes the scores of the weight of `pattern` a result of `step`.
  void addScores(func::FuncOp step, BlockArgument pattern, Norm norm) {
    auto name = attrs::name.ofArg(step, pattern.getArgNumber());
    SmallVector<Operation *> products;
    for (Operation *user : pattern.getUsers())
      if (isa<SDDMMOp, ScatterRowsOp>(user))
        products.push_back(user);
    if (products.size() != 1 ||
        products.front()->getBlock() != &step.getBody().front()) {
      PassRemark::missed("bsr-score-blocks", "NoScores", {step.getLoc(), step},
                         DiagnosticSeverity::Remark)
              .add("Weight", name)
              .add("Products", products.size())
          << "expected the gradient of " << name
          << " to be one product of the step, but got " << products.size()
          << ": it has no scores";
      return;
    }

    OpBuilder b(step.getContext());
    b.setInsertionPointAfter(products.front());
    Value scores = createScores(b, products.front(), norm);
    Operation *terminator = step.getBody().front().getTerminator();
    terminator->insertOperands(terminator->getNumOperands(), scores);
    (void)step.insertResult(
        step.getNumResults(), scores.getType(),
        b.getDictionaryAttr({attrs::name.with(name),
                             attrs::role.with(b.getStringAttr("scores"))}));
    attrs::scoreNorm.set(step, b.getStringAttr(stringifyNorm(norm)));
    ++numScores;
  }
};
} // namespace

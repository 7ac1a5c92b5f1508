// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adds the scores of all blocks of each weight's gradient to a step.

#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Sparsity/Passes.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSCOREBLOCKS
#include "bsr/Transforms/Sparsity/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

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
    SmallVector<SDDMMOp> products;
    for (Operation *user : pattern.getUsers())
      if (auto product = dyn_cast<SDDMMOp>(user))
        products.push_back(product);
    if (products.size() != 1 ||
        products.front()->getBlock() != &step.getBody().front()) {
      emitRemark(step.getLoc(), "expected the gradient of ")
          << name << " to be one product of the step, but got "
          << products.size() << ": it has no scores";
      return;
    }

    SDDMMOp product = products.front();
    auto type = cast<PatternType>(pattern.getType());
    OpBuilder b(product);
    b.setInsertionPointAfter(product);
    auto scores = BlockScoresOp::create(
        b, product.getLoc(),
        RankedTensorType::get({type.getGridRows(), type.getGridCols()},
                              b.getF32Type()),
        norm, product.getA(), product.getB(), product.getFeatureDim());
    Operation *terminator = step.getBody().front().getTerminator();
    terminator->insertOperands(terminator->getNumOperands(),
                               scores.getScores());
    (void)step.insertResult(
        step.getNumResults(), scores.getType(),
        b.getDictionaryAttr({attrs::name.with(name),
                             attrs::role.with(b.getStringAttr("scores"))}));
    attrs::scoreNorm.set(step, b.getStringAttr(stringifyNorm(norm)));
    ++numScores;
  }
};
} // namespace

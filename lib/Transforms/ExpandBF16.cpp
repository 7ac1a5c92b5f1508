// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes bf16 integers, which are converted from and to f32 with integer
// arithmetic.

#include "bsr/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREXPANDBF16
#include "bsr/Transforms/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;

/// Makes bf16 i16 wherever it stands in `op`: in types and constants.
static void replaceTypes(Operation *op) {
  Builder b(op->getContext());
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](BFloat16Type) -> Type { return b.getI16Type(); });
  replacer.addReplacement([&](FloatAttr attr) -> std::optional<Attribute> {
    if (!attr.getType().isBF16())
      return std::nullopt;
    return b.getIntegerAttr(b.getI16Type(), attr.getValue().bitcastToAPInt());
  });
  replacer.addReplacement(
      [&](DenseFPElementsAttr attr) -> std::optional<Attribute> {
        if (!attr.getElementType().isBF16())
          return std::nullopt;
        return attr.bitcast(b.getI16Type());
      });
  replacer.recursivelyReplaceElementsIn(op, /*replaceAttrs=*/true,
                                        /*replaceLocs=*/false,
                                        /*replaceTypes=*/true);
}

namespace {
struct ExpandBF16 : bsr::impl::BSRExpandBF16Base<ExpandBF16> {
  using Base::Base;

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    arith::populateExpandBFloat16Patterns(patterns);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
    replaceTypes(getOperation());
    // What copied bits from one type to the other has nothing to do.
    getOperation()->walk([](arith::BitcastOp op) {
      if (op.getType() != op.getIn().getType())
        return;
      op.replaceAllUsesWith(op.getIn());
      op.erase();
    });
  }
};
} // namespace

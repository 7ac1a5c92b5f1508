// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts between f32 and bf16 with integer arithmetic.

#include "bsr/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREXPANDBF16
#include "bsr/Transforms/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;

namespace {
struct ExpandBF16 : bsr::impl::BSRExpandBF16Base<ExpandBF16> {
  using Base::Base;

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    arith::populateExpandBFloat16Patterns(patterns);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
  }
};
} // namespace

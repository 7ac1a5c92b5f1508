// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes mathematical functions by polynomials, which run in vectors.

#include "bsr/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRAPPROXIMATEMATH
#include "bsr/Transforms/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
struct ApproximateMath : bsr::impl::BSRApproximateMathBase<ApproximateMath> {
  using Base::Base;

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    populateMathAlgebraicSimplificationPatterns(patterns);
    populateMathPolynomialApproximationPatterns(patterns);
    // One over a square root is as exact and as fast as an instruction for it
    // with its correction.
    math::populateExpansionPatterns(patterns, {"rsqrt"});
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
  }
};
} // namespace

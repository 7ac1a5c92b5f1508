// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps indices that a step computes within their tensors.

#include "VerifyBounds.h"
#include "bsr/Analysis/IntegerRanges.h"
#include "bsr/Transforms/Import/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRCLAMPINDICES
#include "bsr/Transforms/Import/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Whether `range`, of an index, is within [low, high].
static bool isWithin(const ConstantIntRanges &range, int64_t low,
                     int64_t high) {
  return range.smin().getSExtValue() >= low &&
         range.smax().getSExtValue() <= high;
}

/// i -> min(max(i, low), high)
static Value clamp(OpBuilder &b, Location loc, Value index, int64_t low,
                   int64_t high) {
  Value least = arith::ConstantIndexOp::create(b, loc, low);
  Value most = arith::ConstantIndexOp::create(b, loc, high);
  Value raised = arith::MaxSIOp::create(b, loc, index, least);
  return arith::MinSIOp::create(b, loc, raised, most);
}

namespace {
struct ClampIndices : bsr::impl::BSRClampIndicesBase<ClampIndices> {
  using Base::Base;

  void runOnOperation() override {
    WalkResult result = getOperation()->walk([&](Operation *op) {
      if (failed(verifyBounds(op)))
        return WalkResult::interrupt();
      for (const BoundedIndex &index : getBoundedIndices(op))
        clampIndex(op, index);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

private:
  void clampIndex(Operation *op, const BoundedIndex &index) {
    auto value = dyn_cast<Value>(index.index);
    if (!value || isWithin(ranges.get(value), index.low(), index.high()))
      return;
    // What ends a region in parallel has no room for other operations.
    Operation *parent = op->getParentOp();
    OpBuilder b(isa<InParallelOpInterface>(parent) ? parent : op);
    op->setOperand(index.operand,
                   clamp(b, op->getLoc(), value, index.low(), index.high()));
    ++numClamped;
  }

  IntegerRanges ranges;
};
} // namespace

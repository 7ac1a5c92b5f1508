// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives every kernel of a step memory of its own. Upstream's
// empty-tensor-to-alloc-tensor makes one tensor of an empty one, for all users.

#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Bufferization/Passes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSEPARATERESULTS
#include "bsr/Transforms/Bufferization/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
struct SeparateResults : bsr::impl::BSRSeparateResultsBase<SeparateResults> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    for (auto launch : step.front().getOps<LaunchOp>()) {
      OpBuilder b(launch);
      for (OpOperand &init : launch.getInitsMutable())
        if (auto empty = init.get().getDefiningOp<tensor::EmptyOp>())
          init.set(bufferization::AllocTensorOp::create(
              b, empty.getLoc(), empty.getType(),
              /*dynamicSizes=*/ValueRange()));
    }
  }
};
} // namespace

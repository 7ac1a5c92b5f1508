// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one place that says what the compiler may do with floating-point numbers.

#include "bsr/Codegen/Common/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRFASTMATH
#include "bsr/Codegen/Common/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

using llvm::SmallPtrSet;

/// Whether `value` is what a loop has summed up so far.
static bool isPartialSum(Value value,
                         const SmallPtrSetImpl<Operation *> &sums) {
  if (Operation *op = value.getDefiningOp())
    return sums.contains(op);
  auto loop = dyn_cast<scf::ForOp>(value.getParentRegion()->getParentOp());
  return loop && value != loop.getInductionVar();
}

/// A sum of products that a loop carries: products that nothing else reads, and
/// sums, to which further terms may come.
static void findSums(Operation *root, SmallPtrSetImpl<Operation *> &sums) {
  root->walk([&](arith::AddFOp op) {
    for (auto [sum, term] : {std::pair(op.getLhs(), op.getRhs()),
                             std::pair(op.getRhs(), op.getLhs())}) {
      if (!isPartialSum(sum, sums))
        continue;
      sums.insert(op);
      if (auto product = term.getDefiningOp<arith::MulFOp>();
          product && product->hasOneUse())
        sums.insert(product);
    }
  });
}

/// What may be done with `op`; its Passes.td says why.
static arith::FastMathFlags getFlags(Operation *op, bool isOfSum) {
  using arith::FastMathFlags;
  if (isa<vector::ReductionOp>(op))
    return FastMathFlags::reassoc | FastMathFlags::contract;
  if (isa<arith::MaximumFOp, arith::MinimumFOp>(op))
    return FastMathFlags::nsz;
  return isOfSum ? FastMathFlags::contract : FastMathFlags::none;
}

namespace {
struct FastMath : bsr::impl::BSRFastMathBase<FastMath> {
  using Base::Base;

  void runOnOperation() override {
    SmallPtrSet<Operation *, 16> sums;
    findSums(getOperation(), sums);
    getOperation()->walk([&](arith::ArithFastMathInterface op) {
      // Contracted, a rounding to a smaller type and back folds away.
      if (isa<arith::ExtFOp, arith::TruncFOp>(op))
        return;
      // Some operations (fpowi) may have no flags at all.
      arith::FastMathFlagsAttr flags = op.getFastMathFlagsAttr();
      op->setAttr(
          op.getFastMathAttrName(),
          arith::FastMathFlagsAttr::get(
              op->getContext(),
              getFlags(op, sums.contains(op)) |
                  (flags ? flags.getValue() : arith::FastMathFlags::none)));
    });
  }
};
} // namespace

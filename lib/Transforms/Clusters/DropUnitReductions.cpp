// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes sums of one summand element-wise.

#include "bsr/Transforms/Clusters/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRDROPUNITREDUCTIONS
#include "bsr/Transforms/Clusters/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Makes the reduced loops of operations parallel where each has one iteration:
/// what is reduced is one element then, which joins the init where it is used.
/// A product stays one.
static int64_t dropUnitReductions(Block &block) {
  int64_t count = 0;
  for (auto op : block.getOps<linalg::GenericOp>()) {
    if (op.getNumReductionLoops() == 0 || linalg::isaContractionOpInterface(op))
      continue;
    SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
    bool isUnit = llvm::all_of(
        llvm::zip_equal(kinds, op.getStaticLoopRanges()), [](auto it) {
          auto [kind, range] = it;
          return kind == utils::IteratorType::parallel || range == 1;
        });
    if (!isUnit)
      continue;
    Builder b(op.getContext());
    Attribute parallel = linalg::IteratorTypeAttr::get(
        op.getContext(), utils::IteratorType::parallel);
    op.setIteratorTypesAttr(
        b.getArrayAttr(SmallVector<Attribute>(kinds.size(), parallel)));
    ++count;
  }
  return count;
}

namespace {
struct DropUnitReductions
    : bsr::impl::BSRDropUnitReductionsBase<DropUnitReductions> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isDeclaration() || !func.getBody().hasOneBlock())
      return;
    numDropped += dropUnitReductions(func.getBody().front());
  }
};
} // namespace

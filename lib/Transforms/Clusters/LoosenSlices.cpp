// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes offsets of slices values, so that kernels of many slices are one.

#include "bsr/Analysis/Windows.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Clusters/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRLOOSENSLICES
#include "bsr/Transforms/Clusters/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// True if `tensor` is what a product makes, whose slices one kernel adds up:
/// how far these are apart is what that kernel is made for.
static bool isSummedUp(Value tensor) {
  auto windows = tensor.getDefiningOp<tensor::ExpandShapeOp>();
  Operation *product = windows ? windows.getSrc().getDefiningOp() : nullptr;
  return product && areSummedUp(product);
}

/// Gives slices an offset that is a value along a dimension of which they take
/// one entry, if there are many of one tensor and shape: what the steps of a
/// loop read is then an argument of one kernel.
static int64_t loosenSlices(Block &block, unsigned maxSlices) {
  int64_t count = 0;
  llvm::MapVector<std::pair<Value, Type>, SmallVector<tensor::ExtractSliceOp>>
      slices;
  for (auto op : block.getOps<tensor::ExtractSliceOp>())
    if (!isSummedUp(op.getSource()) && op.hasUnitStride() &&
        op.getOffsets().empty() && op.getSizes().empty())
      slices[{op.getSource(), op.getType()}].push_back(op);
  for (auto &[source, ops] : slices) {
    if (ops.size() <= maxSlices)
      continue;
    for (tensor::ExtractSliceOp op : ops) {
      OpBuilder b(op), atStart = OpBuilder::atBlockBegin(&block);
      SmallVector<OpFoldResult> offsets = op.getMixedOffsets();
      for (auto [dim, offset] : llvm::enumerate(offsets))
        if (op.getStaticSizes()[dim] == 1 &&
            op.getSourceType().getDimSize(dim) != 1)
          // A launch goes where the first operation of its cluster is.
          offset = arith::ConstantIndexOp::create(atStart, op.getLoc(),
                                                  op.getStaticOffsets()[dim])
                       .getResult();
      op.replaceAllUsesWith(tensor::ExtractSliceOp::create(
                                b, op.getLoc(), op.getType(), op.getSource(),
                                offsets, op.getMixedSizes(),
                                op.getMixedStrides())
                                .getResult());
      op.erase();
      ++count;
    }
  }
  return count;
}

namespace {
struct LoosenSlices : bsr::impl::BSRLoosenSlicesBase<LoosenSlices> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isDeclaration() || !func.getBody().hasOneBlock())
      return;
    numLoosened += loosenSlices(func.getBody().front(),
                                getTarget(func).getCosts().maxSlices);
  }
};
} // namespace

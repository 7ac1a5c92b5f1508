// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Replaces slices of what was inserted by what was inserted. Upstream's
// folder takes only a slice that is exactly what its source inserted.

#include "bsr/Transforms/Import/ForwardSlices.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Slices.h"
#include "bsr/Transforms/Import/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRFORWARDSLICES
#include "bsr/Transforms/Import/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Whether slice `a` is in `b`, or the same.
static bool isInside(OffsetSizeAndStrideOpInterface a,
                     OffsetSizeAndStrideOpInterface b) {
  for (auto [startA, sizeA, startB, sizeB] :
       llvm::zip_equal(a.getStaticOffsets(), a.getStaticSizes(),
                       b.getStaticOffsets(), b.getStaticSizes()))
    if (startA < startB || startA + sizeA > startB + sizeB)
      return false;
  return true;
}
static bool areEqual(OffsetSizeAndStrideOpInterface a,
                     OffsetSizeAndStrideOpInterface b) {
  return a.getStaticOffsets() == b.getStaticOffsets() &&
         a.getStaticSizes() == b.getStaticSizes();
}

/// The type of a slice with all dimensions of the tensor that it is of.
static RankedTensorType getWholeType(OffsetSizeAndStrideOpInterface slice,
                                     RankedTensorType type) {
  return RankedTensorType::get(slice.getStaticSizes(), type.getElementType());
}

/// A slice without some of its dimensions of one entry -> collapse_shape of one
/// with all of them
static void keepRank(tensor::ExtractSliceOp op) {
  RankedTensorType type = op.getType();
  if (!isStatic(op) || type.getRank() == op.getSourceType().getRank())
    return;
  RankedTensorType whole = getWholeType(op, type);
  auto groups = getReassociationIndicesForReshape(whole, type);
  if (!groups)
    return;
  OpBuilder b(op);
  auto slice = tensor::ExtractSliceOp::create(
      b, op.getLoc(), whole, op.getSource(), op.getMixedOffsets(),
      op.getMixedSizes(), op.getMixedStrides());
  op.replaceAllUsesWith(
      tensor::CollapseShapeOp::create(b, op.getLoc(), type, slice, *groups)
          .getResult());
  op.erase();
}

/// The same for what is inserted, by expand_shape
static void keepRank(tensor::InsertSliceOp op) {
  RankedTensorType type = op.getSourceType();
  if (!isStatic(op) || type.getRank() == op.getType().getRank())
    return;
  RankedTensorType whole = getWholeType(op, type);
  auto groups = getReassociationIndicesForReshape(type, whole);
  if (!groups)
    return;
  OpBuilder b(op);
  op.getSourceMutable().assign(tensor::ExpandShapeOp::create(
      b, op.getLoc(), whole, op.getSource(), *groups));
}

namespace {
/// extract(insert(x, s, at i), at i) -> x, or a slice of x;
/// extract(insert(x, s, at i), at j) -> extract(s, at j)
///
/// What a loop stores for another is a value once both are unrolled.
struct Forward : OpRewritePattern<tensor::ExtractSliceOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(tensor::ExtractSliceOp extract,
                                PatternRewriter &rewriter) const override {
    if (!isStatic(extract))
      return failure();
    Value source = extract.getSource();
    while (auto insert = source.getDefiningOp<tensor::InsertSliceOp>()) {
      if (!isStatic(insert))
        break;
      if (areEqual(extract, insert) &&
          insert.getSourceType() == extract.getType()) {
        rewriter.replaceOp(extract, insert.getSource());
        return success();
      }
      if (isInside(extract, insert) &&
          insert.getSourceType().getRank() == insert.getType().getRank()) {
        SmallVector<int64_t> offsets;
        for (auto [outer, inner] : llvm::zip_equal(extract.getStaticOffsets(),
                                                   insert.getStaticOffsets()))
          offsets.push_back(outer - inner);
        rewriter.replaceOpWithNewOp<tensor::ExtractSliceOp>(
            extract, extract.getType(), insert.getSource(),
            getAsIndexOpFoldResult(rewriter.getContext(), offsets),
            extract.getMixedSizes(), extract.getMixedStrides());
        return success();
      }
      if (!areDisjoint(extract, insert))
        break;
      source = insert.getDest();
    }
    if (source == extract.getSource())
      return failure();
    rewriter.modifyOpInPlace(
        extract, [&] { extract.getSourceMutable().assign(source); });
    return success();
  }
};

/// A copy with more dimensions of one entry -> expand_shape
struct Expand : OpRewritePattern<linalg::GenericOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(linalg::GenericOp op,
                                PatternRewriter &rewriter) const override {
    if (op.getNumDpsInputs() != 1 || !getYieldedInput(op))
      return failure();
    auto from = dyn_cast<RankedTensorType>(op.getDpsInputs()[0].getType());
    auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    if (!from || !to || !to.hasStaticShape() ||
        from.getNumElements() != to.getNumElements() ||
        from.getRank() >= to.getRank() || from.getRank() == 0)
      return failure();
    AffineMap read = op.getIndexingMapsArray()[0];
    if (!op.getIndexingMapsArray()[1].isIdentity() ||
        !read.isProjectedPermutation())
      return failure();
    SmallVector<int64_t> dims;
    for (AffineExpr expr : read.getResults())
      dims.push_back(cast<AffineDimExpr>(expr).getPosition());
    if (!llvm::is_sorted(dims))
      return failure();
    // Dimensions of one entry join the dimension behind them, or the last one.
    SmallVector<ReassociationIndices> groups(from.getRank());
    for (int64_t dim : llvm::seq(to.getRank())) {
      auto next = llvm::lower_bound(dims, dim);
      groups[std::min<int64_t>(next - dims.begin(), from.getRank() - 1)]
          .push_back(dim);
    }
    rewriter.replaceOpWithNewOp<tensor::ExpandShapeOp>(
        op, to, op.getDpsInputs()[0], groups);
    return success();
  }
};
} // namespace

void bsr::populateForwardSlicesPatterns(RewritePatternSet &patterns) {
  patterns.add<Forward, Expand>(patterns.getContext());
}

namespace {
struct ForwardSlices : bsr::impl::BSRForwardSlicesBase<ForwardSlices> {
  using Base::Base;

  void runOnOperation() override {
    getOperation()->walk([](tensor::ExtractSliceOp op) { keepRank(op); });
    getOperation()->walk([](tensor::InsertSliceOp op) { keepRank(op); });
    RewritePatternSet patterns(&getContext());
    populateForwardSlicesPatterns(patterns);
    (void)applyPatternsGreedily(getOperation(), std::move(patterns));
  }
};
} // namespace

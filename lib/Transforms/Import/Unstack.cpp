// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns each argument that is a stack of marked matrices into its matrices.

#include "Arguments.h"
#include "Stacks.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/Slices.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Import/ForwardSlices.h"
#include "bsr/Transforms/Import/Passes.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRUNSTACK
#include "bsr/Transforms/Import/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

//===----------------------------------------------------------------------===//
// Slices of what was inserted
//===----------------------------------------------------------------------===//

/// The slice of a stack that `slice` is of the same stack split into stacks of
/// `size` matrices: the first matrix and their number; none if it has others in
/// between.
static std::optional<std::pair<int64_t, int64_t>>
getJoined(OffsetSizeAndStrideOpInterface slice, int64_t size) {
  ArrayRef<int64_t> offsets = slice.getStaticOffsets();
  ArrayRef<int64_t> sizes = slice.getStaticSizes();
  if (!isStatic(slice) || (sizes[0] != 1 && sizes[1] != size))
    return std::nullopt;
  return std::pair(offsets[0] * size + offsets[1], sizes[0] * sizes[1]);
}

/// Whether `groups` join the first two dimensions and keep the others.
static bool joinFirst(ArrayRef<ReassociationIndices> groups) {
  return !groups.empty() && groups[0].size() == 2 &&
         llvm::all_of(
             groups.drop_front(),
             [](const ReassociationIndices &dims) { return dims.size() == 1; });
}

/// `values` of a slice of a stack split once, as those of one that is not.
static SmallVector<OpFoldResult> joinFirst(ArrayRef<int64_t> values,
                                           int64_t first, Builder &b) {
  SmallVector<int64_t> joined(values.drop_front());
  joined[0] = first;
  return getAsIndexOpFoldResult(b.getContext(), joined);
}

namespace {
/// extract(split(s), at i) -> split(extract(s, at i n)), where split(s) has
/// stacks of n matrices of s
///
/// `lax.scan` takes n steps at a time with `unroll=n`.
struct ExtractFromSplit : OpRewritePattern<tensor::ExtractSliceOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(tensor::ExtractSliceOp extract,
                                PatternRewriter &rewriter) const override {
    auto split = extract.getSource().getDefiningOp<tensor::ExpandShapeOp>();
    if (!split || !joinFirst(split.getReassociationIndices()))
      return failure();
    auto joined = getJoined(extract, split.getResultType().getDimSize(1));
    if (!joined)
      return failure();
    auto offsets =
        joinFirst(extract.getStaticOffsets(), joined->first, rewriter);
    auto sizes = joinFirst(extract.getStaticSizes(), joined->second, rewriter);
    auto strides = joinFirst(extract.getStaticStrides(), 1, rewriter);
    auto type =
        tensor::ExtractSliceOp::inferResultType(split.getSrcType(), sizes);
    if (!canReshape(type, extract.getType()))
      return failure();
    Value slice =
        tensor::ExtractSliceOp::create(rewriter, extract.getLoc(), type,
                                       split.getSrc(), offsets, sizes, strides);
    rewriter.replaceOp(extract, createReshape(rewriter, extract.getLoc(), slice,
                                              extract.getType()));
    return success();
  }
};

/// join(insert(x, s, at i)) -> insert(join(x), join(s), at i n), where join(s)
/// has the matrices of stacks of n
struct JoinInserted : OpRewritePattern<tensor::CollapseShapeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(tensor::CollapseShapeOp join,
                                PatternRewriter &rewriter) const override {
    auto insert = join.getSrc().getDefiningOp<tensor::InsertSliceOp>();
    if (!insert || !insert->hasOneUse() ||
        !joinFirst(join.getReassociationIndices()))
      return failure();
    auto joined = getJoined(insert, join.getSrcType().getDimSize(1));
    if (!joined)
      return failure();
    SmallVector<int64_t> shape(insert.getStaticSizes().drop_front());
    shape[0] = joined->second;
    auto type = join.getResultType().clone(shape);
    if (!canReshape(insert.getSourceType(), type))
      return failure();
    Location loc = insert.getLoc();
    Value source = createReshape(rewriter, loc, insert.getSource(), type);
    Value dest = tensor::CollapseShapeOp::create(
        rewriter, loc, join.getResultType(), insert.getDest(),
        join.getReassociationIndices());
    rewriter.replaceOpWithNewOp<tensor::InsertSliceOp>(
        join, source, dest,
        joinFirst(insert.getStaticOffsets(), joined->first, rewriter),
        joinFirst(insert.getStaticSizes(), joined->second, rewriter),
        joinFirst(insert.getStaticStrides(), 1, rewriter));
    return success();
  }
};
} // namespace

/// Makes values of slices of what was inserted, and slices of stacks of slices
/// of stacks that loops take apart again.
static void simplifySlices(func::FuncOp func) {
  RewritePatternSet patterns(func.getContext());
  patterns.add<ExtractFromSplit, JoinInserted>(func.getContext());
  populateForwardSlicesPatterns(patterns);
  tensor::CollapseShapeOp::getCanonicalizationPatterns(patterns,
                                                       func.getContext());
  tensor::ExpandShapeOp::getCanonicalizationPatterns(patterns,
                                                     func.getContext());
  linalg::FillOp::getCanonicalizationPatterns(patterns, func.getContext());
  tensor::populateMergeConsecutiveInsertExtractSlicePatterns(patterns);
  (void)applyPatternsGreedily(func, std::move(patterns));
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

using Partitions = SmallVector<std::optional<Partition>>;

/// How the arguments of `func` are apart: those that are stacks of marked
/// matrices or of their masks.
static Partitions getPartitions(func::FuncOp func) {
  Partitions partitions(func.getNumArguments());
  for (auto [arg, type] : llvm::enumerate(func.getArgumentTypes()))
    if (MarkAttr mark = getMark(func, arg);
        mark && mark.getNumDims(MarkDim::Stack))
      partitions[arg] =
          Partition::ofStack(cast<ShapedType>(type).getDimSize(0));
  return partitions;
}

static bool hasStacks(const Partitions &partitions) {
  return llvm::any_of(partitions,
                      [](const auto &stack) { return stack.has_value(); });
}

namespace {
struct Unstack : bsr::impl::BSRUnstackBase<Unstack> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(forEachBody(getOperation(),
                           [&](func::FuncOp func) { return run(func); })))
      signalPassFailure();
  }

  LogicalResult run(func::FuncOp func) {
    Partitions partitions = getPartitions(func);
    if (!hasStacks(partitions))
      return success();
    if (failed(requireOwnSignature(func, getOperation())) ||
        failed(verifyPartNames(func, partitions)))
      return failure();
    simplifySlices(func);
    // Stacks of stacks are taken apart from the outside in.
    do {
      Stacks stacks(func.getBody().front());
      splitArguments(
          func, partitions,
          [&](Value stack, ArrayRef<Value> matrices) {
            stacks.add(stack, matrices);
            numMatrices += matrices.size();
          },
          [&](Value next) { stacks.want(next); });
      stacks.takeApart();
      partitions = getPartitions(func);
    } while (hasStacks(partitions));
    eraseDead(func.getBody().front());
    return success();
  }
};
} // namespace

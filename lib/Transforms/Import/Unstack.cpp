// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns each argument that is a stack of marked matrices into its matrices.

#include "Stacks.h"
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

/// Whether argument `arg` is a stack of marked matrices or of their masks.
static bool isStack(func::FuncOp func, unsigned arg) {
  MarkAttr mark = getMark(func, arg);
  return mark && mark.getNumDims(MarkDim::Stack);
}

/// What is called `name`, of the matrix `index`.
static StringAttr getMatrixName(StringAttr name, int64_t index) {
  return StringAttr::get(name.getContext(),
                         name.getValue() + "." + Twine(index));
}

/// The attributes of matrix `index` of the argument of type `type` with
/// `attributes`; its result is number `result`.
static DictionaryAttr getMatrixAttributes(DictionaryAttr attributes,
                                          RankedTensorType type, int64_t index,
                                          int64_t result) {
  Builder b(attributes.getContext());
  NamedAttrList list(attributes);
  auto name = attributes.getAs<StringAttr>(attrs::name);
  list.set(attrs::name, getMatrixName(name, index));
  if (!attributes.contains(attrs::origin))
    list.set(attrs::origin,
             b.getDictionaryAttr(
                 {{"name", name},
                  {"shape", b.getDenseI64ArrayAttr(type.getShape())}}));
  if (auto aliases = attributes.getAs<ArrayAttr>(attrs::aliases)) {
    SmallVector<Attribute> names;
    for (auto alias : aliases.getAsRange<StringAttr>())
      names.push_back(getMatrixName(alias, index));
    list.set(attrs::aliases, b.getArrayAttr(names));
  }
  if (auto mark = attributes.getAs<MarkAttr>(attrs::mark)) {
    ArrayRef<MarkDim> dims = mark.getDims().drop_front();
    if (dims == ArrayRef({MarkDim::Row, MarkDim::Col}))
      dims = {};
    list.set(attrs::mark,
             mark.withDims(dims, getMatrixName(mark.getWeight(), index)));
  }
  if (auto mask = attributes.getAs<MaskAttr>(attrs::mask))
    list.set(attrs::mask, MaskAttr::get(b.getContext(),
                                        getMatrixName(mask.getWeight(), index),
                                        mask.getTranspose()));
  if (attributes.contains(attrs::result))
    list.set(attrs::result, b.getI64IntegerAttr(result));
  return list.getDictionary(b.getContext());
}

namespace {
/// What an argument or a result becomes: itself, or the matrices of a stack.
struct Parts {
  unsigned first, count;
  bool isStack;
};
} // namespace

/// Gives `func` a matrix for each of the stacks among its arguments, and for
/// each of their next values; the stacks are put together from the ones and the
/// others sliced from the next stacks. Says so to `stacks`; returns the number
/// of matrices.
static unsigned splitArguments(func::FuncOp func, Stacks &stacks) {
  Block &body = func.getBody().front();
  Operation *terminator = body.getTerminator();
  OpBuilder b = OpBuilder::atBlockBegin(&body);
  unsigned numArguments = func.getNumArguments();

  SmallVector<Parts> arguments, results;
  SmallVector<bool> isStackResult(func.getNumResults());
  unsigned next = 0;
  for (unsigned arg : llvm::seq(numArguments)) {
    bool isApart = isStack(func, arg);
    unsigned count =
        isApart ? cast<ShapedType>(func.getArgumentTypes()[arg]).getDimSize(0)
                : 1;
    arguments.push_back({next, count, isApart});
    next += count;
    if (auto result = func.getArgAttrOfType<IntegerAttr>(arg, attrs::result))
      isStackResult[result.getInt()] = isApart;
  }
  next = 0;
  for (auto [type, isApart] : llvm::zip(func.getResultTypes(), isStackResult)) {
    unsigned count = isApart ? cast<ShapedType>(type).getDimSize(0) : 1;
    results.push_back({next, count, isApart});
    next += count;
  }

  SmallVector<DictionaryAttr> argumentAttributes, resultAttributes;
  unsigned numMatrices = 0;
  for (unsigned arg : llvm::seq(numArguments)) {
    BlockArgument old = body.getArgument(arg);
    DictionaryAttr attributes = func.getArgAttrDict(arg);
    auto result = func.getArgAttrOfType<IntegerAttr>(arg, attrs::result);
    unsigned first = result ? results[result.getInt()].first : 0;
    if (!arguments[arg].isStack) {
      old.replaceAllUsesWith(body.addArgument(old.getType(), old.getLoc()));
      NamedAttrList list(attributes);
      if (result)
        list.set(attrs::result, b.getI64IntegerAttr(first));
      argumentAttributes.push_back(list.getDictionary(b.getContext()));
      continue;
    }
    auto type = cast<RankedTensorType>(old.getType());
    auto matrix = RankedTensorType::get(type.getShape().drop_front(),
                                        type.getElementType());
    SmallVector<Value> matrices;
    for (unsigned i : llvm::seq(arguments[arg].count)) {
      matrices.push_back(body.addArgument(matrix, old.getLoc()));
      argumentAttributes.push_back(
          getMatrixAttributes(attributes, type, i, first + i));
    }
    Value stack = createStack(b, old.getLoc(), matrices);
    old.replaceAllUsesWith(stack);
    stacks.add(stack, matrices);
    numMatrices += matrices.size();
  }
  body.eraseArguments(0, numArguments);

  b.setInsertionPoint(terminator);
  SmallVector<Value> returned;
  for (auto [i, operand] : llvm::enumerate(terminator->getOperands())) {
    DictionaryAttr attributes = func.getResultAttrDict(i);
    if (!attributes)
      attributes = b.getDictionaryAttr({});
    if (!results[i].isStack) {
      returned.push_back(operand);
      resultAttributes.push_back(attributes);
      continue;
    }
    stacks.want(operand);
    for (unsigned index : llvm::seq(results[i].count)) {
      returned.push_back(createSlice(b, operand.getLoc(), operand, index));
      NamedAttrList list(attributes);
      if (auto name = attributes.getAs<StringAttr>(attrs::name))
        list.set(attrs::name, getMatrixName(name, index));
      resultAttributes.push_back(list.getDictionary(b.getContext()));
    }
  }
  terminator->setOperands(returned);
  func.setType(b.getFunctionType(body.getArgumentTypes(),
                                 ValueRange(returned).getTypes()));
  func.setAllArgAttrs(argumentAttributes);
  func.setAllResultAttrs(resultAttributes);
  return numMatrices;
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
    auto hasStacks = [&] {
      return llvm::any_of(llvm::seq(func.getNumArguments()),
                          [&](unsigned arg) { return isStack(func, arg); });
    };
    if (!hasStacks())
      return success();
    if (failed(requireOwnSignature(func, getOperation())) ||
        failed(verifyNames(func)))
      return failure();
    simplifySlices(func);
    // Stacks of stacks are taken apart from the outside in.
    while (hasStacks()) {
      Stacks stacks(func.getBody().front());
      numMatrices += splitArguments(func, stacks);
      stacks.takeApart();
    }
    for (Operation &op :
         llvm::make_early_inc_range(llvm::reverse(func.getBody().front())))
      if (isOpTriviallyDead(&op))
        op.erase();
    return success();
  }

  /// Checks that the names of the matrices are new.
  LogicalResult verifyNames(func::FuncOp func) {
    for (unsigned arg : llvm::seq(func.getNumArguments())) {
      if (!isStack(func, arg))
        continue;
      auto name = func.getArgAttrOfType<StringAttr>(arg, attrs::name);
      int64_t size =
          cast<ShapedType>(func.getArgumentTypes()[arg]).getDimSize(0);
      for (unsigned other : llvm::seq(func.getNumArguments())) {
        auto taken = func.getArgAttrOfType<StringAttr>(other, attrs::name);
        for (int64_t index : llvm::seq(size))
          if (taken && taken == getMatrixName(name, index) &&
              func.getArgAttr(arg, attrs::role) ==
                  func.getArgAttr(other, attrs::role))
            return emitError(func.getLoc(), "expected no argument named ")
                   << taken << " beside the stack " << name
                   << ", which has a matrix of that name, but got argument #"
                   << other;
      }
    }
    return success();
  }
};
} // namespace

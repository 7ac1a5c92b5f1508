// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes what is computed with concatenated weights what is computed with each.

#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Slices.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Transforms/Import/ForwardSlices.h"
#include "bsr/Transforms/Sparsity/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Interfaces/TilingInterface.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <map>
#include <set>

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSPLITCONCATS
#include "bsr/Transforms/Sparsity/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// A concatenation: tensors side by side along `dim`, all there is of it.
struct Concat {
  struct Piece {
    int64_t offset, size;
    Value value;
  };

  int64_t dim;
  SmallVector<Piece> pieces;
};

/// The concatenations of marked weights, by their dimension and the shape.
using Concats = std::map<std::pair<int64_t, std::vector<int64_t>>, Concat>;
} // namespace

/// The concatenation that `value` is, a chain of inserted slices that covers
/// it, if it is one.
static std::optional<Concat> getConcat(Value value) {
  auto last = value.getDefiningOp<tensor::InsertSliceOp>();
  std::optional<int64_t> dim = last ? getCutDim(last) : std::nullopt;
  if (!dim)
    return std::nullopt;
  Concat concat{*dim, {}};
  int64_t extent = last.getType().getDimSize(*dim), covered = 0;
  for (auto op = last; op && getCutDim(op) == dim && covered < extent;
       op = op.getDest().getDefiningOp<tensor::InsertSliceOp>()) {
    concat.pieces.push_back({op.getStaticOffsets()[*dim],
                             op.getStaticSizes()[*dim], op.getSource()});
    covered += concat.pieces.back().size;
  }
  llvm::sort(concat.pieces,
             [](const auto &a, const auto &b) { return a.offset < b.offset; });
  int64_t end = 0;
  for (const Concat::Piece &piece : concat.pieces) {
    if (piece.offset != end)
      return std::nullopt;
    end += piece.size;
  }
  if (end != extent)
    return std::nullopt;
  return concat;
}

/// Whether `value` is a marked argument, or an element-wise function of one and
/// others.
static bool isMarked(Value value) {
  bool found = false;
  walkElementWise(value, [&](Value source, bool) {
    auto arg = dyn_cast<BlockArgument>(source);
    auto func = arg ? dyn_cast<func::FuncOp>(arg.getOwner()->getParentOp())
                    : func::FuncOp();
    found |= func && attrs::mark.ofArg(func, arg.getArgNumber());
  });
  return found;
}

/// The concatenation that `value` is, if it is a matrix with a marked piece.
static std::optional<Concat> getMarkedConcat(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || type.getRank() != 2)
    return std::nullopt;
  auto concat = getConcat(value);
  if (!concat || llvm::none_of(concat->pieces, [](const Concat::Piece &piece) {
        return isMarked(piece.value);
      }))
    return std::nullopt;
  return concat;
}

/// How `value`, read by an entry-wise operation or a sum, is cut: it has the
/// shape of concatenated weights or of their transpose, and is put together
/// along that dimension as well. So is a gradient.
static std::optional<Concat> getLikeConcat(Value value,
                                           const Concats &concats) {
  auto insert = value.getDefiningOp<tensor::InsertSliceOp>();
  std::optional<int64_t> dim = insert ? getCutDim(insert) : std::nullopt;
  if (!dim)
    return std::nullopt;
  auto known = concats.find({*dim, insert.getType().getShape().vec()});
  if (known == concats.end())
    return std::nullopt;
  return known->second;
}

/// Whether each point of `op` reads an entry of `operand` of its own: there is
/// no product of it with something else.
static bool isReadOnce(linalg::LinalgOp op, OpOperand &operand) {
  return op.getMatchingIndexingMap(&operand).isPermutation();
}

/// Whether the operation is one of known extents that upstream tiles.
static bool canTile(linalg::LinalgOp op) {
  return op.hasPureTensorSemantics() && !op.hasDynamicShape() &&
         op.hasOnlyProjectedPermutations() &&
         isa<TilingInterface>(op.getOperation());
}

/// The extents of `type`, whatever their order.
using Extents = std::vector<int64_t>;
static Extents getExtents(Type type) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(type).getShape();
  Extents extents(shape.begin(), shape.end());
  llvm::sort(extents);
  return extents;
}

namespace {
/// f(concat(v, w), x) -> concat(f(v, x'), f(w, x"))
/// sum(concat(v, w), x) + c -> sum(w, x") + (sum(v, x') + c)
///
/// x' and x" are the slices of x, or x, that the loop of the concatenation
/// reads with v and with w.
struct SplitOperand : OpInterfaceRewritePattern<linalg::LinalgOp> {
  SplitOperand(MLIRContext *context, const Concats &concats)
      : OpInterfaceRewritePattern(context), concats(concats) {}

  LogicalResult matchAndRewrite(linalg::LinalgOp op,
                                PatternRewriter &rewriter) const override {
    if (!canTile(op))
      return failure();
    for (OpOperand *operand : op.getDpsInputOperands()) {
      auto concat = getMarkedConcat(operand->get());
      if (!concat && isReadOnce(op, *operand))
        concat = getLikeConcat(operand->get(), concats);
      if (concat) {
        unsigned loop =
            op.getMatchingIndexingMap(operand).getDimPosition(concat->dim);
        return split(op, *concat, loop, rewriter);
      }
    }
    return failure();
  }

  LogicalResult split(linalg::LinalgOp op, const Concat &concat, unsigned loop,
                      PatternRewriter &rewriter) const {
    bool isSum =
        op.getIteratorTypesArray()[loop] == utils::IteratorType::reduction;
    Location loc = op.getLoc();
    SmallVector<int64_t> offsets(op.getNumLoops(), 0);
    SmallVector<int64_t> sizes = op.getStaticLoopRanges();
    SmallVector<Value> results(op.getDpsInits());
    if (!isSum)
      for (Value &result : results) {
        auto type = cast<RankedTensorType>(result.getType());
        result = tensor::EmptyOp::create(rewriter, loc, type.getShape(),
                                         type.getElementType());
      }
    for (const Concat::Piece &piece : concat.pieces) {
      offsets[loop] = piece.offset;
      sizes[loop] = piece.size;
      auto tile = cast<TilingInterface>(op.getOperation());
      auto tiled = tile.getTiledImplementation(
          rewriter, getAsIndexOpFoldResult(rewriter.getContext(), offsets),
          getAsIndexOpFoldResult(rewriter.getContext(), sizes));
      if (failed(tiled))
        return failure();
      auto part = cast<linalg::LinalgOp>(tiled->tiledOps.front());
      for (auto [number, result] : llvm::enumerate(results)) {
        if (isSum) {
          rewriter.modifyOpInPlace(part, [&, number = number] {
            part.getDpsInitsMutable()[number].assign(results[number]);
          });
          continue;
        }
        AffineMap map = op.getIndexingMapMatchingResult(op->getResult(number));
        auto type = cast<RankedTensorType>(result.getType());
        SmallVector<int64_t> at, extents;
        for (unsigned dim : llvm::seq(map.getNumResults())) {
          at.push_back(offsets[map.getDimPosition(dim)]);
          extents.push_back(sizes[map.getDimPosition(dim)]);
        }
        SmallVector<int64_t> strides(type.getRank(), 1);
        result = tensor::InsertSliceOp::create(
            rewriter, loc, part->getResult(number), result,
            getAsIndexOpFoldResult(rewriter.getContext(), at),
            getAsIndexOpFoldResult(rewriter.getContext(), extents),
            getAsIndexOpFoldResult(rewriter.getContext(), strides));
      }
      if (isSum)
        results.assign(part->getResults().begin(), part->getResults().end());
    }
    rewriter.replaceOp(op, results);
    return success();
  }

private:
  const Concats &concats;
};

/// extract(f(x, y), at i) -> f(x', y'), if nothing but such slices is used of
/// it, no entry twice
///
/// So the gradient of each weight is a product of its own.
struct SplitResult : OpRewritePattern<tensor::ExtractSliceOp> {
  SplitResult(MLIRContext *context, const std::set<Extents> &shapes)
      : OpRewritePattern(context), shapes(shapes) {}

  LogicalResult matchAndRewrite(tensor::ExtractSliceOp extract,
                                PatternRewriter &rewriter) const override {
    auto op = extract.getSource().getDefiningOp<linalg::LinalgOp>();
    if (!op || op->getNumResults() != 1 || !canTile(op) || !isPart(extract))
      return failure();
    // A product with a weight is sparse as it is: leave it.
    bool isFill = isa<linalg::FillOp>(op.getOperation());
    if (!isFill &&
        (!shapes.count(getExtents(extract.getType())) || !arePartsOnly(op) ||
         llvm::any_of(op.getDpsInputs(), isMarked)))
      return failure();
    auto tiled = tensor::replaceExtractSliceWithTiledProducer(
        rewriter, extract, cast<OpResult>(extract.getSource()));
    if (failed(tiled))
      return failure();
    rewriter.replaceOp(extract, tiled->tiledValues.front());
    return success();
  }

private:
  static bool isPart(tensor::ExtractSliceOp op) {
    return isStatic(op) &&
           op.getType().getRank() == op.getSourceType().getRank();
  }

  static bool arePartsOnly(Operation *op) {
    SmallVector<OffsetSizeAndStrideOpInterface> parts;
    for (Operation *user : op->getUsers()) {
      auto part = dyn_cast<tensor::ExtractSliceOp>(user);
      if (!part || !isPart(part) ||
          llvm::any_of(parts, [&](OffsetSizeAndStrideOpInterface other) {
            return !areDisjoint(part, other);
          }))
        return false;
      parts.push_back(part);
    }
    return true;
  }

  const std::set<Extents> &shapes;
};
} // namespace

/// Makes inserted slices of the concatenations of matrices that `filter` is
/// true of: what follows knows one form.
static void insertConcats(func::FuncOp func,
                          function_ref<bool(tensor::ConcatOp)> filter) {
  SmallVector<tensor::ConcatOp> ops;
  func.walk([&](tensor::ConcatOp op) {
    auto type = dyn_cast<RankedTensorType>(op.getType());
    if (type && type.getRank() == 2 && type.hasStaticShape() && filter(op))
      ops.push_back(op);
  });
  IRRewriter rewriter(func.getContext());
  for (tensor::ConcatOp op : ops) {
    rewriter.setInsertionPoint(op);
    if (auto inserted = op.decomposeOperation(rewriter); succeeded(inserted))
      rewriter.replaceOp(op, *inserted);
  }
}

static void splitConcats(func::FuncOp func) {
  MLIRContext *context = func.getContext();
  insertConcats(func, [](tensor::ConcatOp op) {
    return llvm::any_of(op.getInputs(), isMarked);
  });
  std::set<Extents> shapes;
  Concats concats;
  func.walk([&](tensor::InsertSliceOp op) {
    auto concat = getMarkedConcat(op);
    if (!concat)
      return;
    std::vector<int64_t> shape = op.getType().getShape().vec();
    concats.insert({{concat->dim, shape}, *concat});
    Concat transpose{1 - concat->dim, concat->pieces};
    concats.insert({{transpose.dim, {shape[1], shape[0]}}, transpose});
    for (const Concat::Piece &piece : concat->pieces)
      if (isMarked(piece.value))
        shapes.insert(getExtents(piece.value.getType()));
  });
  if (shapes.empty())
    return;
  insertConcats(func, [&](tensor::ConcatOp op) {
    auto type = cast<RankedTensorType>(op.getType());
    return concats.count({op.getDim(), type.getShape().vec()});
  });
  RewritePatternSet patterns(context);
  patterns.add<SplitOperand>(context, concats);
  patterns.add<SplitResult>(context, shapes);
  populateForwardSlicesPatterns(patterns);
  tensor::ExtractSliceOp::getCanonicalizationPatterns(patterns, context);
  tensor::populateFoldTensorEmptyPatterns(patterns);
  linalg::FillOp::getCanonicalizationPatterns(patterns, context);
  (void)applyPatternsGreedily(func, std::move(patterns));
}

namespace {
struct SplitConcats : bsr::impl::BSRSplitConcatsBase<SplitConcats> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (!func.isDeclaration() && func.getBody().hasOneBlock())
      splitConcats(func);
  }
};
} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns marked arguments of several dimensions of rows or columns into
// matrices.

#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Sparsity/Passes.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <set>

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRFLATTEN
#include "bsr/Transforms/Sparsity/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// The shapes between which this pass reshapes.
class Shapes {
public:
  void add(RankedTensorType matrix, RankedTensorType tensor) {
    matrices.insert(getKey(matrix));
    tensors.insert(getKey(tensor));
  }
  bool empty() const { return matrices.empty(); }

  /// True if `reshaped` can be a marked argument, transposed perhaps, in its
  /// old shape, and `matrix` is that as a matrix.
  bool contain(Type matrix, Type tensor) const {
    return matrices.count(getKey(matrix)) && contain(tensor);
  }
  bool contain(Type tensor) const { return tensors.count(getKey(tensor)); }

private:
  /// The extents of `type`, whatever their order.
  static std::vector<int64_t> getKey(Type type) {
    std::vector<int64_t> shape;
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      shape.assign(tensor.getShape().begin(), tensor.getShape().end());
    llvm::sort(shape);
    return shape;
  }

  std::set<std::vector<int64_t>> matrices, tensors;
};
} // namespace

/// Makes argument `arg` of `func` the matrix that `mark` says it is.
static void flatten(func::FuncOp func, unsigned arg, MarkAttr mark,
                    Shapes &shapes) {
  Block &body = func.getBody().front();
  BlockArgument argument = body.getArgument(arg);
  auto type = cast<RankedTensorType>(argument.getType());
  RankedTensorType matrix = mark.getMatrixType(type);
  shapes.add(matrix, type);
  shapes.add(matrix,
             matrix.clone({1, matrix.getDimSize(0), matrix.getDimSize(1)}));
  int64_t rows = mark.getNumDims(MarkDim::Row);
  SmallVector<ReassociationIndices> groups(2);
  for (int64_t dim : llvm::seq(type.getRank()))
    groups[dim >= rows].push_back(dim);

  argument.setType(matrix);
  OpBuilder b = OpBuilder::atBlockBegin(&body);
  auto expanded = tensor::ExpandShapeOp::create(b, argument.getLoc(), type,
                                                argument, groups);
  argument.replaceAllUsesExcept(expanded, expanded);
  if (auto result = attrs::result.ofArg(func, arg)) {
    OpOperand &next = body.getTerminator()->getOpOperand(result.getInt());
    b.setInsertionPoint(body.getTerminator());
    next.set(tensor::CollapseShapeOp::create(b, next.get().getLoc(), matrix,
                                             next.get(), groups));
  }
  if (!attrs::origin.ofArg(func, arg))
    attrs::origin.setOfArg(func, arg,
                           createOrigin(attrs::name.ofArg(func, arg), type));
}

/// Exchanges sums of `op` so that those that go through `operand` follow its
/// dimensions.
static void sortLoops(IRRewriter &rewriter, linalg::GenericOp op,
                      OpOperand &operand) {
  AffineMap map = op.getMatchingIndexingMap(&operand);
  if (!map.isProjectedPermutation())
    return;
  SmallVector<unsigned> order = llvm::to_vector(llvm::seq(op.getNumLoops()));
  SmallVector<unsigned> loops, places;
  for (AffineExpr dim : map.getResults())
    if (unsigned loop = cast<AffineDimExpr>(dim).getPosition();
        linalg::isReductionIterator(op.getIteratorTypesArray()[loop]))
      loops.push_back(loop);
  places = loops;
  llvm::sort(places);
  for (auto [place, loop] : llvm::zip_equal(places, loops))
    order[place] = loop;
  if (places != loops)
    (void)linalg::interchangeGenericOp(rewriter, op, order);
}

/// The loops of `op` that a reshape between `shapes`, of an operand or of its
/// result, makes one: a list for each dimension of the matrix that has several.
static SmallVector<SmallVector<unsigned>> getGroups(linalg::GenericOp op,
                                                    const Shapes &shapes) {
  auto getLoops = [](AffineMap map, ArrayRef<ReassociationIndices> dims) {
    SmallVector<SmallVector<unsigned>> groups;
    for (const ReassociationIndices &group : dims)
      if (map.isProjectedPermutation() && group.size() > 1)
        groups.push_back(llvm::map_to_vector(
            group, [&](int64_t dim) { return map.getDimPosition(dim); }));
    return groups;
  };
  for (OpOperand *operand : op.getDpsInputOperands())
    if (auto expand = operand->get().getDefiningOp<tensor::ExpandShapeOp>();
        expand && shapes.contain(expand.getSrcType(), expand.getResultType()))
      return getLoops(op.getMatchingIndexingMap(operand),
                      expand.getReassociationIndices());
  for (OpResult result : op->getResults())
    for (Operation *user : result.getUsers())
      if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(user);
          collapse &&
          shapes.contain(collapse.getResultType(), collapse.getSrcType()))
        return getLoops(op.getIndexingMapMatchingResult(result),
                        collapse.getReassociationIndices());
  return {};
}

/// The loops of a tensor's dimensions, `loops`, with those of each group side
/// by side, where the last of them is; failure if only some of a group are
/// there.
static FailureOr<SmallVector<unsigned>>
gather(SmallVector<unsigned> loops, ArrayRef<SmallVector<unsigned>> groups) {
  for (ArrayRef<unsigned> group : groups) {
    unsigned left = llvm::count_if(
        loops, [&](unsigned loop) { return llvm::is_contained(group, loop); });
    if (left == 0)
      continue;
    if (left != group.size())
      return failure();
    SmallVector<unsigned> gathered;
    for (unsigned loop : loops) {
      if (!llvm::is_contained(group, loop))
        gathered.push_back(loop);
      else if (--left == 0)
        llvm::append_range(gathered, group);
    }
    loops = gathered;
  }
  return loops;
}

/// Transposes operands and the result of product `op` so that the loops that a
/// reshape between `shapes` makes one go through neighbouring dimensions. Heads
/// in front of tokens are not, say. Returns true if some were not.
static bool alignOperands(IRRewriter &rewriter, linalg::GenericOp op,
                          const Shapes &shapes) {
  if (op.getNumReductionLoops() == 0 || op.getNumDpsInputs() != 2 ||
      op->getNumResults() != 1 || op.hasIndexSemantics())
    return false;
  SmallVector<SmallVector<unsigned>> groups = getGroups(op, shapes);
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  SmallVector<SmallVector<int64_t>> permutations;
  for (AffineMap &map : maps) {
    if (!map.isProjectedPermutation())
      return false;
    SmallVector<unsigned> loops;
    for (unsigned dim : llvm::seq(map.getNumResults()))
      loops.push_back(map.getDimPosition(dim));
    auto gathered = gather(loops, groups);
    if (failed(gathered))
      return false;
    SmallVector<AffineExpr> exprs;
    auto &permutation = permutations.emplace_back();
    for (unsigned loop : *gathered) {
      exprs.push_back(rewriter.getAffineDimExpr(loop));
      permutation.push_back(llvm::find(loops, loop) - loops.begin());
    }
    map = AffineMap::get(map.getNumDims(), 0, exprs, rewriter.getContext());
  }
  if (llvm::all_of(permutations, [](ArrayRef<int64_t> permutation) {
        return isIdentityPermutation(permutation);
      }))
    return false;

  rewriter.setInsertionPoint(op);
  Location loc = op.getLoc();
  SmallVector<Value> operands;
  for (auto [operand, permutation] :
       llvm::zip_equal(op->getOperands(), permutations))
    operands.push_back(createTranspose(rewriter, loc, operand, permutation));
  // Sums start from zeros as a rule.
  Value init = op.getDpsInits()[0];
  auto type = cast<RankedTensorType>(operands.back().getType());
  if (init != operands.back() && isZeros(init))
    operands.back() =
        arith::ConstantOp::create(rewriter, loc, rewriter.getZeroAttr(type));
  auto aligned = linalg::GenericOp::create(
      rewriter, loc, type, ValueRange(operands).drop_back(), operands.back(),
      maps, op.getIteratorTypesArray());
  rewriter.inlineRegionBefore(op.getRegion(), aligned.getRegion(),
                              aligned.getRegion().begin());
  rewriter.replaceOp(
      op, createTranspose(rewriter, loc, aligned.getResult(0),
                          invertPermutationVector(permutations.back())));
  return true;
}

/// Makes operations between reshapes of `shapes` operations on the matrices.
static void foldReshapes(func::FuncOp func, const Shapes &shapes) {
  RewritePatternSet patterns(func.getContext());
  linalg::populateFoldReshapeOpsByCollapsingPatterns(
      patterns, [&](OpOperand *operand) {
        if (auto collapse =
                dyn_cast<tensor::CollapseShapeOp>(operand->getOwner()))
          return shapes.contain(collapse.getResultType(),
                                collapse.getSrcType());
        auto expand = operand->get().getDefiningOp<tensor::ExpandShapeOp>();
        return expand &&
               shapes.contain(expand.getSrcType(), expand.getResultType());
      });
  linalg::ControlDropUnitDims units;
  units.controlFn = [&](Operation *op) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!generic || llvm::none_of(op->getOperandTypes(), [&](Type type) {
          return shapes.contain(type);
        }))
      return SmallVector<unsigned>();
    return llvm::to_vector(llvm::seq(generic.getNumLoops()));
  };
  linalg::populateFoldUnitExtentDimsPatterns(patterns, units);
  tensor::CollapseShapeOp::getCanonicalizationPatterns(patterns,
                                                       func.getContext());
  tensor::ExpandShapeOp::getCanonicalizationPatterns(patterns,
                                                     func.getContext());
  linalg::FillOp::getCanonicalizationPatterns(patterns, func.getContext());
  tensor::populateFoldTensorEmptyPatterns(patterns);
  (void)applyPatternsGreedily(func, std::move(patterns));
}

/// Moves the reshapes between `shapes` away from `func`'s arguments and
/// results.
static void collapseLoops(func::FuncOp func, const Shapes &shapes) {
  // PyTorch exports einsum as a batch product of one batch.
  RewritePatternSet batches(func.getContext());
  linalg::populateContractionOpRankReducingPatterns(batches);
  (void)applyPatternsGreedily(func, std::move(batches));
  IRRewriter rewriter(func.getContext());
  func.walk([&](linalg::LinalgOp op) {
    auto *operand = llvm::find_if(op->getOpOperands(), [&](OpOperand &operand) {
      return shapes.contain(operand.get().getType());
    });
    if (isa<linalg::FillOp>(op) || operand == op->getOpOperands().end())
      return;
    rewriter.setInsertionPoint(op);
    // Only loops of generic operations can be collapsed, and sums only if their
    // loops have the order of the dimensions.
    unsigned number = operand->getOperandNumber();
    auto generic = dyn_cast<linalg::GenericOp>(op.getOperation());
    if (!generic) {
      auto generalized = linalg::generalizeNamedOp(rewriter, op);
      if (failed(generalized))
        return;
      generic = *generalized;
    }
    sortLoops(rewriter, generic, generic->getOpOperand(number));
  });
  foldReshapes(func, shapes);
  bool aligned = false;
  func.walk([&](linalg::GenericOp op) {
    aligned |= alignOperands(rewriter, op, shapes);
  });
  if (aligned)
    foldReshapes(func, shapes);
}

namespace {
struct Flatten : bsr::impl::BSRFlattenBase<Flatten> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isDeclaration() || !func.getBody().hasOneBlock())
      return;
    // Masks have the shape of their weight.
    SmallVector<MarkAttr> marks;
    for (unsigned arg : llvm::seq(func.getNumArguments()))
      marks.push_back(getMark(func, arg));
    Shapes shapes;
    for (unsigned arg : llvm::seq(func.getNumArguments())) {
      MarkAttr mark = marks[arg];
      auto type = dyn_cast<RankedTensorType>(func.getArgument(arg).getType());
      if (!mark || !type || mark.getNumDims(MarkDim::Stack) ||
          type.getRank() != static_cast<int64_t>(mark.getDims().size()))
        continue;
      if (attrs::mark.ofArg(func, arg))
        attrs::mark.setOfArg(func, arg, mark.withDims({}, mark.getWeight()));
      if (type.getRank() == 2)
        continue;
      flatten(func, arg, mark, shapes);
      ++numFlattened;
    }
    if (shapes.empty())
      return;
    func.setType(FunctionType::get(
        func.getContext(), func.getBody().front().getArgumentTypes(),
        func.getBody().front().getTerminator()->getOperandTypes()));
    collapseLoops(func, shapes);
  }
};
} // namespace

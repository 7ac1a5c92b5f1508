// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules that push bsr.to_dense down through what reads it.

#include "Propagation.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::bsr;

bool Propagation::push(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp || !linalgOp.hasPureTensorSemantics())
    return false;
  // Kernels on patterns stand outside of branches: what is there reads the
  // matrix.
  if (op->getParentOfType<scf::IfOp>())
    return false;
  if (pushLookUp(linalgOp))
    return true;
  bool changed = replaceInits(linalgOp);
  if (llvm::none_of(linalgOp.getDpsInputs(), [](Value input) {
        return input.getDefiningOp<ToDenseOp>();
      }))
    return pushTranspose(linalgOp) || changed;
  if (!isRewritten(op))
    return changed;
  rewriter.setInsertionPoint(op);
  return pushProduct(linalgOp) || pushElementWise(linalgOp) ||
         pushReduction(linalgOp) || pushLineSums(linalgOp) ||
         splitLineSums(linalgOp) || changed;
}

/// f(.., outs = to_dense(p, v)) -> f(.., outs = empty), where f does not read
/// it.
bool Propagation::replaceInits(linalg::LinalgOp op) {
  bool changed = false;
  for (OpOperand &init : op.getDpsInitsMutable()) {
    if (!init.get().getDefiningOp<ToDenseOp>() || !isElementWise(op))
      continue;
    auto type = cast<RankedTensorType>(init.get().getType());
    rewriter.setInsertionPoint(op);
    init.set(tensor::EmptyOp::create(rewriter, op.getLoc(), type.getShape(),
                                     type.getElementType()));
    changed = true;
  }
  return changed;
}

/// transpose(spmm(p, v, transpose^-1(x))) -> spmm(p, v, x)
/// transpose(transpose(spmm)) -> transpose(spmm)
///
/// What a product needed in another order is often brought back into its own.
bool Propagation::pushTranspose(linalg::LinalgOp op) {
  SmallVector<int64_t> permutation, inner;
  Value source = getPermutedSource(op->getResult(0), permutation);
  if (!source)
    return false;
  bool repeated = false, onlyUse = source.hasOneUse();
  while (Value next = getPermutedSource(source, inner)) {
    permutation = applyPermutation(inner, permutation);
    source = next;
    repeated = true;
    onlyUse &= source.hasOneUse();
  }
  auto product = source.getDefiningOp<SpMMOp>();
  if (!product)
    return false;
  rewriter.setInsertionPoint(op);
  Value x = getPermutedSource(product.getX(), inner);
  if (x && onlyUse &&
      isIdentityPermutation(applyPermutation(inner, permutation))) {
    int64_t featureDim =
        llvm::find(permutation, product.getFeatureDim()) - permutation.begin();
    rewriter.replaceOpWithNewOp<SpMMOp>(
        op, op->getResult(0).getType(), product.getPattern(),
        product.getValues(), x, product.getBias(), product.getTranspose(),
        featureDim);
    return true;
  }
  if (!repeated)
    return false;
  rewriter.replaceOp(
      op, createTranspose(rewriter, op.getLoc(), source, permutation));
  return true;
}

/// The product of `x` and the matrix of `toDense`, summed over loop `summed`,
/// in elements of type `element`.
static ProductOperand createSpMM(RewriterBase &rewriter, Location loc,
                                 ToDenseOp toDense, const ProductOperand &x,
                                 unsigned summed, unsigned kept, bool transpose,
                                 Type element) {
  int64_t featureDim = llvm::find(x.loops, summed) - x.loops.begin();
  PatternType pattern = toDense.getPattern().getType();
  SmallVector<int64_t> shape(
      cast<RankedTensorType>(x.value.getType()).getShape());
  shape[featureDim] = transpose ? pattern.getRows() : pattern.getCols();
  ProductOperand y{
      SpMMOp::create(rewriter, loc, RankedTensorType::get(shape, element),
                     toDense.getPattern(), toDense.getValues(), x.value,
                     /*bias=*/Value(), transpose, featureDim),
      x.loops};
  y.loops[featureDim] = kept;
  return y;
}

/// D1: contraction(x, to_dense(p, v)) + c -> spmm(p, v, x) + c
///
/// One dimension of the matrix is summed with x, the other is in the result;
/// all others belong to x alone.
bool Propagation::pushProduct(linalg::LinalgOp op) {
  if (!isFloatContraction(op))
    return false;
  auto dims = linalg::inferContractionDims(op);
  if (!dims->batch.empty() || dims->k.size() != 1)
    return false;
  unsigned summed = dims->k[0];
  OpOperand *init = op.getDpsInitOperand(0);
  auto type = cast<RankedTensorType>(init->get().getType());

  for (unsigned index : {0, 1}) {
    OpOperand *matrix = op.getDpsInputOperand(index);
    auto toDense = matrix->get().getDefiningOp<ToDenseOp>();
    AffineMap map = op.getMatchingIndexingMap(matrix);
    if (!toDense || toDense.getBackground() || map.getNumResults() != 2)
      continue;
    bool summedIsCol = map.getDimPosition(1) == summed;
    unsigned kept = map.getDimPosition(summedIsCol ? 0 : 1);
    bool transpose = summedIsCol != toDense.getTranspose();
    SmallVector<unsigned> loops;
    for (AffineExpr dim : op.getMatchingIndexingMap(init).getResults())
      loops.push_back(cast<AffineDimExpr>(dim).getPosition());

    // Without transposes in front of x, if the result needs none then.
    SmallVector<ProductOperand> xs =
        getProductOperands(op, op.getDpsInputOperand(1 - index));
    SmallVector<unsigned> xLoops(loops);
    llvm::replace(xLoops, kept, summed);
    ProductOperand x = xs.front();
    for (const ProductOperand &source : xs)
      if (source.loops == xLoops)
        x = source;

    std::optional<ProductOperand> y =
        createGather(op, toDense, xs, summed, kept, transpose);
    if (!y) {
      y = createSpMM(rewriter, op.getLoc(), toDense, x, summed, kept, transpose,
                     type.getElementType());
      ++(transpose ? counts.spmmTransposed : counts.spmm);
    }
    Value result = alignTo(rewriter, op.getLoc(), *y, loops);
    if (!isZero(init->get()))
      result = addTo(rewriter, op.getLoc(), result, init->get());
    rewriter.replaceOp(op, result);
    return true;
  }
  return false;
}

namespace {
/// The inputs of an operation on matrices of one pattern, seen from its loops.
struct StoredInputs {
  Value pattern;
  bool transpose;
  /// Per input, what the operation on values reads: values, a scalar, or null
  /// for a dense matrix, to be sampled.
  SmallVector<Value> values;
  /// Per input, its one value outside the pattern, or null if it has many.
  SmallVector<Value> background;
};
} // namespace

/// What the inputs of `op` are on and off the pattern of the first of them that
/// is `to_dense`; failure if an input is neither a matrix nor uniform.
static FailureOr<StoredInputs>
getStoredInputs(RewriterBase &rewriter, linalg::LinalgOp op,
                function_ref<Value(Value)> getUniform) {
  AffineMap identity = rewriter.getMultiDimIdentityMap(2);
  StoredInputs inputs;
  for (OpOperand *operand : op.getDpsInputOperands()) {
    Value uniform = getUniform(operand->get());
    inputs.values.push_back(uniform);
    inputs.background.push_back(uniform);
    if (uniform)
      continue;
    Access access = getAccess(op, *operand, identity);
    if (access == Access::Other)
      return failure();
    auto toDense = operand->get().getDefiningOp<ToDenseOp>();
    // A matrix of one row or column that is broadcast is a vector.
    bool isMatrix = access == Access::Same || access == Access::Transposed;
    if (!toDense || !isMatrix)
      continue;
    bool transpose = toDense.getTranspose() != (access == Access::Transposed);
    if (!inputs.pattern) {
      inputs.pattern = toDense.getPattern();
      inputs.transpose = transpose;
    }
    if (toDense.getPattern() != inputs.pattern || transpose != inputs.transpose)
      continue;
    inputs.values.back() = toDense.getValues();
    Value background = toDense.getBackground();
    if (!background) {
      auto type = RankedTensorType::get(
          {}, toDense.getDense().getType().getElementType());
      background = arith::ConstantOp::create(rewriter, op.getLoc(),
                                             rewriter.getZeroAttr(type));
    }
    inputs.background.back() = background;
  }
  if (!inputs.pattern)
    return failure();
  return inputs;
}

/// The vector that `operand` of element-wise `op` broadcasts over the matrix,
/// or null if it is none.
static Value getBroadcastVector(RewriterBase &rewriter, linalg::LinalgOp op,
                                OpOperand &operand) {
  Access access = getAccess(op, operand, rewriter.getMultiDimIdentityMap(2));
  if (access == Access::Row || access == Access::Column)
    return operand.get();
  // What is broadcast by an operation of its own.
  auto copy = operand.get().getDefiningOp<linalg::LinalgOp>();
  if (!copy || copy.getNumLoops() != 2 || !isElementWise(copy))
    return {};
  OpOperand *source = getYieldedInput(copy);
  return source ? getBroadcastVector(rewriter, copy, *source) : Value();
}

/// D3c: what `a * x` is off the pattern, where `a` is 0 there or, as 0 times a
/// number may be, NaN: the same, if `x` is finite. A vector `x` is looked at
/// when the step runs: the sum of its entries times 0 is 0, or NaN. Null if
/// `op` is no such product.
Value Propagation::getZeroProduct(linalg::LinalgOp op, ValueRange backgrounds) {
  Block *body = op.getBlock();
  auto product =
      body->getTerminator()->getOperand(0).getDefiningOp<arith::MulFOp>();
  if (!product || op->getNumResults() != 1)
    return {};
  auto a = dyn_cast<BlockArgument>(product.getLhs()),
       x = dyn_cast<BlockArgument>(product.getRhs());
  if (!a || !x)
    return {};
  if (!backgrounds[a.getArgNumber()])
    std::swap(a, x);
  Value zero = backgrounds[a.getArgNumber()];
  OpOperand *factor = op.getDpsInputOperand(x.getArgNumber());
  if (!zero || !isa<RankedTensorType>(zero.getType()) ||
      !intervals.get(zero).isZeroOrNaN())
    return {};
  if (intervals.get(factor->get()).isFinite())
    return zero;
  Value vec = getBroadcastVector(rewriter, op, *factor);
  if (!vec || llvm::count(backgrounds, Value()) != 1)
    return {};
  Location loc = op.getLoc();
  auto type = cast<RankedTensorType>(vec.getType());
  auto scalar = RankedTensorType::get({}, type.getElementType());
  Value init =
      arith::ConstantOp::create(rewriter, loc, rewriter.getZeroAttr(scalar));
  AffineMap maps[] = {rewriter.getMultiDimIdentityMap(type.getRank()),
                      AffineMap::get(type.getRank(), 0, rewriter.getContext())};
  SmallVector<utils::IteratorType> kinds(type.getRank(),
                                         utils::IteratorType::reduction);
  auto sum = linalg::GenericOp::create(
      rewriter, loc, scalar, vec, init, maps, kinds,
      [&](OpBuilder &b, Location, ValueRange args) {
        Value none = arith::ConstantOp::create(
            b, loc, b.getZeroAttr(type.getElementType()));
        Value term = arith::MulFOp::create(b, loc, args[0], none);
        Value next = arith::AddFOp::create(b, loc, args[1], term);
        linalg::YieldOp::create(b, loc, next);
      });
  SmallVector<Value> inputs(backgrounds);
  inputs[x.getArgNumber()] = sum.getResult(0);
  return rebuildElementWise(rewriter, op, inputs, {}).front();
}

/// M1: f(to_dense(p, splat a), s) -> to_dense(p, splat f(a, s), f(0, s))
///
/// What a program computes from a mask is a mask, of two values.
bool Propagation::pushMask(linalg::LinalgOp op) {
  if (op.getNumLoops() != 2 || !isElementWise(op))
    return false;
  bool readsMask = false;
  for (Value input : op.getDpsInputs()) {
    auto toDense = input.getDefiningOp<ToDenseOp>();
    if (!getUniform(toDense ? toDense.getValues() : input))
      return false;
    readsMask |= static_cast<bool>(toDense);
  }
  rewriter.setInsertionPoint(op);
  return readsMask && pushElementWise(op);
}

/// D2, D3, D3b, D3c, V1:
/// f(to_dense(p, a), x, s) -> to_dense(p, f(a, sample(p, x), s), background c)
///
/// where c is f off the pattern: a constant whatever x is, or, without x, f of
/// the backgrounds and scalars, or a product with 0.
bool Propagation::pushElementWise(linalg::LinalgOp op) {
  if (op.getNumLoops() != 2 || !isElementWise(op))
    return false;
  auto inputs = getStoredInputs(rewriter, op,
                                [&](Value value) { return getUniform(value); });
  if (failed(inputs))
    return false;

  SmallVector<Value> backgrounds;
  for (auto [result, yielded] : llvm::zip_equal(
           op->getResults(), op.getBlock()->getTerminator()->getOperands())) {
    TypedAttr constant = foldBody(op, inputs->background, yielded);
    auto type = RankedTensorType::get({}, getElementTypeOrSelf(result));
    if (!constant) {
      backgrounds.push_back({});
      continue;
    }
    backgrounds.push_back(arith::ConstantOp::create(
        rewriter, op.getLoc(), DenseElementsAttr::get(type, constant)));
  }
  if (llvm::is_contained(backgrounds, Value())) {
    if (!llvm::is_contained(inputs->background, Value())) {
      backgrounds = rebuildElementWise(rewriter, op, inputs->background, {});
    } else {
      Value product = getZeroProduct(op, inputs->background);
      if (!product)
        return false;
      backgrounds = {product};
    }
  }

  for (auto [value, operand] :
       llvm::zip_equal(inputs->values, op.getDpsInputOperands())) {
    if (!value)
      value = sampleOperand(op, *operand, inputs->pattern, inputs->transpose);
    if (Value scalar = getUniform(value))
      value = scalar;
  }
  SmallVector<Value> values = rebuildElementWise(
      rewriter, op, inputs->values,
      getValuesType(inputs->pattern, op->getResult(0)).getShape());
  // Constants stay known.
  for (auto [value, yielded] :
       llvm::zip_equal(values, op.getBlock()->getTerminator()->getOperands()))
    if (TypedAttr constant = foldBody(op, inputs->values, yielded)) {
      auto type = cast<RankedTensorType>(value.getType());
      value = arith::ConstantOp::create(rewriter, op.getLoc(),
                                        DenseElementsAttr::get(type, constant));
      setUniform(value, arith::ConstantOp::create(
                            rewriter, op.getLoc(),
                            DenseElementsAttr::get(
                                RankedTensorType::get({}, yielded.getType()),
                                constant)));
    }
  SmallVector<Value> results;
  for (auto [result, stored, background] :
       llvm::zip_equal(op->getResults(), values, backgrounds)) {
    bool swapped = !op.getIndexingMapMatchingResult(result).isIdentity();
    if (matchPattern(background, m_Zero()) ||
        intervals.get(background).isZero())
      background = {};
    results.push_back(ToDenseOp::create(rewriter, op.getLoc(), result.getType(),
                                        inputs->pattern, stored, background,
                                        inputs->transpose != swapped));
  }
  rewriter.replaceOp(op, results);
  ++counts.elementWisePushed;
  return true;
}

/// What `op` adds to its init, by the operation `sum` at the end of its body;
/// null if it does not add something up.
static Value getTerm(linalg::LinalgOp op, arith::AddFOp &sum) {
  BlockArgument out = op.getMatchingBlockArgument(op.getDpsInitOperand(0));
  sum = op.getBlock()
            ->getTerminator()
            ->getOperand(0)
            .getDefiningOp<arith::AddFOp>();
  if (!sum || !out.hasOneUse() || !llvm::is_contained(sum->getOperands(), out))
    return {};
  return sum.getLhs() == out ? sum.getRhs() : sum.getLhs();
}

/// D4: sum of f(to_dense(p, a), s) over both dimensions
///     -> sum of f(a, s) over the live slots + num_absent(p) * f(0, s)
bool Propagation::pushReduction(linalg::LinalgOp op) {
  if (op.getNumLoops() != 2 || op.getNumReductionLoops() != 2 ||
      op->getNumResults() != 1 || op.hasDynamicShape() ||
      cast<RankedTensorType>(op->getResult(0).getType()).getRank() != 0)
    return false;
  Block *body = op.getBlock();
  if (llvm::any_of(body->without_terminator(), [](Operation &inner) {
        return isa<linalg::IndexOp>(inner) || inner.getNumRegions() ||
               !isPure(&inner);
      }))
    return false;
  arith::AddFOp sum;
  Value term = getTerm(op, sum);
  if (!term)
    return false;

  auto inputs = getStoredInputs(rewriter, op,
                                [&](Value value) { return getUniform(value); });
  if (failed(inputs))
    return false;
  TypedAttr absent = foldBody(op, inputs->background, term);
  bool isZeroOutside = absent && matchPattern(absent, m_AnyZeroFloat());
  if (!isZeroOutside && llvm::is_contained(inputs->background, Value()))
    return false;

  Location loc = op.getLoc();
  auto pattern = cast<PatternType>(inputs->pattern.getType());
  SmallVector<int64_t> shape{pattern.getSlots(), pattern.getBlockRows(),
                             pattern.getBlockCols()};
  SmallVector<AffineMap> maps;
  for (auto [value, operand] :
       llvm::zip_equal(inputs->values, op.getDpsInputOperands())) {
    if (!value)
      value = sampleOperand(op, *operand, inputs->pattern, inputs->transpose);
    maps.push_back(getBroadcastMap(rewriter, value, shape));
  }
  inputs->values.push_back(LiveOp::create(
      rewriter, loc,
      RankedTensorType::get({pattern.getSlots()}, rewriter.getI1Type()),
      inputs->pattern));
  maps.push_back(AffineMap::get(3, 0, rewriter.getAffineDimExpr(0)));
  maps.push_back(AffineMap::get(3, 0, rewriter.getContext()));

  // Clones the body up to `term`; returns the clone of `term`.
  auto cloneTerm = [&](OpBuilder &b, ValueRange args) {
    IRMapping mapping;
    for (auto [from, to] : llvm::zip(body->getArguments(), args))
      mapping.map(from, to);
    for (Operation &inner : body->without_terminator())
      if (&inner != sum)
        b.clone(inner, mapping);
    return mapping.lookupOrDefault(term);
  };
  Type type = sum.getType();
  Value init = op.getDpsInitOperand(0)->get();
  auto reduced = linalg::GenericOp::create(
      rewriter, loc, init.getType(), inputs->values, init, maps,
      SmallVector<utils::IteratorType>(3, utils::IteratorType::reduction),
      [&](OpBuilder &b, Location, ValueRange args) {
        Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
        Value live =
            arith::SelectOp::create(b, loc, args.drop_back().back(),
                                    cloneTerm(b, args.drop_back(2)), zero);
        linalg::YieldOp::create(
            b, loc,
            arith::AddFOp::create(b, loc, args.back(), live).getResult());
      });
  Value result = reduced.getResult(0);
  if (!isZeroOutside) {
    SmallVector<Value> scalars(inputs->background);
    scalars.push_back(NumAbsentOp::create(
        rewriter, loc, RankedTensorType::get({}, type), inputs->pattern));
    scalars.push_back(result);
    Value empty =
        tensor::EmptyOp::create(rewriter, loc, ArrayRef<int64_t>(), type);
    result = linalg::GenericOp::create(
                 rewriter, loc, init.getType(), scalars, empty,
                 SmallVector<AffineMap>(scalars.size() + 1,
                                        rewriter.getMultiDimIdentityMap(0)),
                 ArrayRef<utils::IteratorType>(),
                 [&](OpBuilder &b, Location, ValueRange args) {
                   Value count = args[args.size() - 3],
                         partial = args[args.size() - 2];
                   Value background = arith::MulFOp::create(
                       b, loc, count, cloneTerm(b, args.drop_back(3)));
                   Value total =
                       arith::AddFOp::create(b, loc, partial, background);
                   // Without absent entries nothing is added, not even 0 * NaN.
                   Value zero =
                       arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
                   Value none = arith::CmpFOp::create(
                       b, loc, arith::CmpFPredicate::OEQ, count, zero);
                   linalg::YieldOp::create(
                       b, loc,
                       arith::SelectOp::create(b, loc, none, partial, total)
                           .getResult());
                 })
                 .getResult(0);
  }
  rewriter.replaceOp(op, result);
  ++counts.reduced;
  return true;
}

/// D5: sum of to_dense(p, v, background b) over one dimension + c
///     -> reduce_vec(p, v, background b) + c
bool Propagation::pushLineSums(linalg::LinalgOp op) {
  if (op.getNumLoops() != 2 || op.getNumReductionLoops() != 1 ||
      op.getNumDpsInputs() != 1 || op->getNumResults() != 1 ||
      op.hasDynamicShape())
    return false;
  OpOperand *input = op.getDpsInputOperand(0), *init = op.getDpsInitOperand(0);
  auto toDense = input->get().getDefiningOp<ToDenseOp>();
  AffineMap map = op.getMatchingIndexingMap(input);
  Block *body = op.getBlock();
  auto sum =
      body->getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!toDense || !map.isPermutation() || !sum ||
      body->getOperations().size() != 2 ||
      !llvm::is_contained(sum->getOperands(), body->getArgument(0)) ||
      !llvm::is_contained(sum->getOperands(), body->getArgument(1)))
    return false;

  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  unsigned kept = kinds[0] == utils::IteratorType::parallel ? 0 : 1;
  auto type = cast<RankedTensorType>(init->get().getType());
  PatternType pattern = toDense.getPattern().getType();
  bool alongCols = (map.getDimPosition(1) == kept) != toDense.getTranspose();
  Location loc = op.getLoc();
  Value result = ReduceVecOp::create(
      rewriter, loc,
      RankedTensorType::get({alongCols ? pattern.getCols() : pattern.getRows()},
                            type.getElementType()),
      toDense.getPattern(), toDense.getValues(), toDense.getBackground(),
      alongCols);
  if (type.getRank() != 1) {
    auto all = llvm::to_vector<2>(llvm::seq<int64_t>(type.getRank()));
    result = tensor::ExpandShapeOp::create(rewriter, loc, type, result,
                                           ArrayRef<ReassociationIndices>{all});
  }
  if (!isZero(init->get()))
    result = addTo(rewriter, loc, result, init->get());
  rewriter.replaceOp(op, result);
  ++counts.reduced;
  return true;
}

/// D5b: sum of f(to_dense(p, a), x, s) over one dimension + c
///      -> sum of to_dense(p, f(a, sample(p, x), s), background b) + c
///
/// The function becomes an operation of its own, which D3 pushes; as it is, if
/// that does not.
bool Propagation::splitLineSums(linalg::LinalgOp op) {
  if (op.getNumLoops() != 2 || op.getNumReductionLoops() != 1 ||
      op->getNumResults() != 1 || op.hasDynamicShape())
    return false;
  Block *body = op.getBlock();
  arith::AddFOp sum;
  Value term = getTerm(op, sum);
  if (!term)
    return false;
  if (isa<BlockArgument>(term) && op.getNumDpsInputs() == 1)
    return false;

  Location loc = op.getLoc();
  SmallVector<int64_t> shape = op.getStaticLoopRanges();
  Value empty = tensor::EmptyOp::create(rewriter, loc, shape, term.getType());
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  AffineMap initMap = maps.back();
  maps.back() = rewriter.getMultiDimIdentityMap(2);
  auto terms = linalg::GenericOp::create(
      rewriter, loc, empty.getType(), op.getDpsInputs(), empty, maps,
      SmallVector<utils::IteratorType>(2, utils::IteratorType::parallel),
      [&](OpBuilder &b, Location, ValueRange args) {
        IRMapping mapping;
        mapping.map(body->getArguments(), args);
        for (Operation &inner : body->without_terminator())
          if (&inner != sum)
            b.clone(inner, mapping);
        linalg::YieldOp::create(b, loc, mapping.lookupOrDefault(term));
      });
  auto sums = linalg::GenericOp::create(
      rewriter, loc, op->getResultTypes(), terms.getResults(), op.getDpsInits(),
      ArrayRef<AffineMap>{rewriter.getMultiDimIdentityMap(2), initMap},
      op.getIteratorTypesArray(), [&](OpBuilder &b, Location, ValueRange args) {
        linalg::YieldOp::create(
            b, loc,
            arith::AddFOp::create(b, loc, args[0], args[1]).getResult());
      });
  rewriter.setInsertionPoint(terms);
  if (!pushElementWise(cast<linalg::LinalgOp>(terms.getOperation()))) {
    rewriter.eraseOp(sums);
    rewriter.eraseOp(terms);
    return false;
  }
  rewriter.replaceOp(op, sums.getResults());
  return true;
}

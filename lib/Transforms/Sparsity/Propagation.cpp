// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What pulling and pushing share: uniform tensors and dead operations.

#include "Propagation.h"
#include "bsr/Analysis/Decisions.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::bsr;

bool bsr::isFloatContraction(linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics() || op.hasDynamicShape() ||
      !linalg::isaContractionOpInterface(op))
    return false;
  // No product of this dialect has f16 and bf16.
  auto has = [&](auto isHalf) {
    return llvm::any_of(op->getOperandTypes(), [&](Type type) {
      return isHalf(getElementTypeOrSelf(type));
    });
  };
  if (has([](Type type) { return type.isF16(); }) &&
      has([](Type type) { return type.isBF16(); }))
    return false;
  if (llvm::any_of(op->getOperandTypes(), [](Type type) {
        return !isa<FloatType>(getElementTypeOrSelf(type));
      }))
    return false;
  // Upstream looks through all casts; one to an integer drops the fraction.
  if (llvm::any_of(op.getBlock()->without_terminator(), [](Operation &inner) {
        return !isa<arith::MulFOp, arith::AddFOp, arith::ExtFOp,
                    arith::TruncFOp>(inner);
      }))
    return false;
  auto dims = linalg::inferContractionDims(op);
  return succeeded(dims) &&
         op.getNumLoops() == dims->batch.size() + dims->m.size() +
                                 dims->n.size() + dims->k.size();
}

SmallVector<ProductOperand> bsr::getProductOperands(linalg::LinalgOp op,
                                                    OpOperand *operand) {
  ProductOperand view{operand->get(), {}};
  for (AffineExpr dim : op.getMatchingIndexingMap(operand).getResults())
    view.loops.push_back(cast<AffineDimExpr>(dim).getPosition());
  SmallVector<ProductOperand> views = {view};
  SmallVector<int64_t> permutation;
  while (Value source = getPermutedSource(view.value, permutation)) {
    view.value = source;
    view.loops =
        applyPermutation(view.loops, invertPermutationVector(permutation));
    views.push_back(view);
  }
  return views;
}

Value bsr::alignTo(OpBuilder &b, Location loc, const ProductOperand &operand,
                   ArrayRef<unsigned> loops) {
  SmallVector<int64_t> permutation;
  for (unsigned loop : loops)
    permutation.push_back(llvm::find(operand.loops, loop) -
                          operand.loops.begin());
  return createTranspose(b, loc, operand.value, permutation);
}

Value bsr::addTo(OpBuilder &builder, Location loc, Value a, Value b) {
  auto type = cast<RankedTensorType>(a.getType());
  Value empty = tensor::EmptyOp::create(builder, loc, type.getShape(),
                                        type.getElementType());
  return linalg::AddOp::create(builder, loc, ValueRange{a, b},
                               ValueRange{empty})
      .getResult(0);
}

RankedTensorType bsr::getValuesType(Value pattern, Value dense) {
  return cast<PatternType>(pattern.getType())
      .getValuesType(cast<RankedTensorType>(dense.getType()).getElementType());
}

Value bsr::createSample(OpBuilder &b, Location loc, Value pattern, Value dense,
                        bool transpose) {
  return SampleOp::create(b, loc, getValuesType(pattern, dense), pattern, dense,
                          transpose);
}

Value Propagation::sampleOperand(linalg::LinalgOp op, OpOperand &operand,
                                 Value pattern, bool transpose) {
  Location loc = op.getLoc();
  Value value = operand.get();
  Access access = getAccess(op, operand, rewriter.getMultiDimIdentityMap(2));
  if (access == Access::Same || access == Access::Transposed)
    return createSample(rewriter, loc, pattern, value,
                        transpose != (access == Access::Transposed));
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() != 1) {
    auto all = llvm::to_vector<2>(llvm::seq<int64_t>(type.getRank()));
    value = tensor::CollapseShapeOp::create(
        rewriter, loc, value, ArrayRef<ReassociationIndices>{all});
  }
  bool alongCols = transpose != (access == Access::Column);
  SmallVector<int64_t> shape(getValuesType(pattern, value).getShape());
  shape[alongCols ? 1 : 2] = 1;
  return SampleVecOp::create(
      rewriter, loc, RankedTensorType::get(shape, type.getElementType()),
      pattern, value, alongCols);
}

TypedAttr bsr::foldBody(linalg::LinalgOp op, ValueRange inputs, Value target) {
  DenseMap<Value, Attribute> constants;
  auto get = [&](Value value) -> Attribute {
    Attribute constant = constants.lookup(value);
    if (!constant)
      matchPattern(value, m_Constant(&constant));
    return constant;
  };
  for (auto [argument, value] :
       llvm::zip(op.getBlock()->getArguments(), inputs)) {
    Attribute constant;
    if (!value || !matchPattern(value, m_Constant(&constant)))
      continue;
    if (auto elements = dyn_cast<DenseElementsAttr>(constant)) {
      if (!elements.isSplat())
        continue;
      constant = elements.getSplatValue<Attribute>();
    }
    constants[argument] = constant;
  }
  for (Operation &inner : op.getBlock()->without_terminator()) {
    SmallVector<Attribute> operands;
    for (Value operand : inner.getOperands())
      operands.push_back(get(operand));
    // select(c, x, x) -> x
    if (isa<arith::SelectOp>(inner) && operands[1] &&
        operands[1] == operands[2]) {
      constants[inner.getResult(0)] = operands[1];
      continue;
    }
    // Folding may change an operation in place: fold a copy.
    Operation *copy = inner.clone();
    SmallVector<OpFoldResult> results;
    if (succeeded(copy->fold(operands, results)))
      for (auto [result, folded] : llvm::zip(inner.getResults(), results)) {
        auto constant = dyn_cast<Attribute>(folded);
        constants[result] = constant ? constant : get(cast<Value>(folded));
      }
    copy->destroy();
  }
  return dyn_cast_or_null<TypedAttr>(get(target));
}

Propagation::Propagation(Operation *root) : rewriter(root->getContext(), this) {
  SmallVector<Operation *> ops;
  root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    ops.push_back(op);
    return isa<linalg::LinalgOp>(op) ? WalkResult::skip()
                                     : WalkResult::advance();
  });
  for (Operation *op : ops) {
    findUniform(op);
    if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
      pushMask(linalgOp);
  }
}

bool Propagation::isRewritten(Operation *op) {
  auto [known, isNew] = rewritten.try_emplace(op);
  if (isNew)
    known->second = decide("bsr-propagate", op);
  return known->second;
}

void Propagation::notifyOperationErased(Operation *op) {
  rewritten.erase(op);
  products.erase(op);
  intervals.erase(op);
  for (Value result : op->getResults()) {
    uniforms.erase(result);
    // A scalar that is gone; its tensors are no longer known to be uniform.
    for (Value tensor : takeTensors(result))
      uniforms.erase(tensor);
  }
}

void Propagation::notifyOperationReplaced(Operation *op,
                                          ValueRange replacement) {
  for (auto [result, scalar] : llvm::zip_equal(op->getResults(), replacement))
    for (Value tensor : takeTensors(result))
      setUniform(tensor, scalar);
}

void Propagation::setUniform(Value tensor, Value scalar) {
  uniforms[tensor] = scalar;
  tensorsOf[scalar].push_back(tensor);
}

SmallVector<Value> Propagation::takeTensors(Value scalar) {
  auto found = tensorsOf.find(scalar);
  if (found == tensorsOf.end())
    return {};
  // Some may be gone since, or have another scalar.
  SmallVector<Value> tensors =
      llvm::filter_to_vector(found->second, [&](Value tensor) {
        return uniforms.lookup(tensor) == scalar;
      });
  tensorsOf.erase(found);
  return tensors;
}

Value Propagation::getUniform(Value value) const {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || type.getRank() == 0)
    return value;
  return uniforms.lookup(value);
}

Value Propagation::getStored(Value dense, Value pattern, bool transpose) const {
  if (Value scalar = getUniform(dense))
    return scalar;
  auto toDense = dense.getDefiningOp<ToDenseOp>();
  if (!toDense || toDense.getPattern() != pattern ||
      toDense.getTranspose() != transpose)
    return {};
  return getUniform(toDense.getValues());
}

/// Computes the scalar of the results of `op` behind it, if they are uniform:
/// fills, splats, their reshapes, element-wise functions of scalars, and
/// tensors of one element.
void Propagation::findUniform(Operation *op) {
  auto type = op->getNumResults()
                  ? dyn_cast<RankedTensorType>(op->getResult(0).getType())
                  : RankedTensorType();
  if (!type || !type.hasStaticShape())
    return;
  rewriter.setInsertionPointAfter(op);
  if (type.getRank() == 0) {
    foldScalars(op);
    return;
  }
  auto scalarType = RankedTensorType::get({}, type.getElementType());
  Location loc = op->getLoc();
  DenseElementsAttr constant;
  if (matchPattern(op, m_Constant(&constant))) {
    if (constant.isSplat())
      setUniform(op->getResult(0),
                 arith::ConstantOp::create(rewriter, loc,
                                           constant.resizeSplat(scalarType)));
    return;
  }
  if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op)) {
    if (Value scalar = getUniform(op->getOperand(0)))
      setUniform(op->getResult(0), scalar);
    return;
  }
  if (auto splat = dyn_cast<tensor::SplatOp>(op)) {
    setUniform(splat, tensor::FromElementsOp::create(rewriter, loc, scalarType,
                                                     splat.getInput()));
    return;
  }
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
      linalgOp && isElementWise(linalgOp)) {
    SmallVector<Value> inputs;
    for (Value input : linalgOp.getDpsInputs())
      inputs.push_back(getUniform(input));
    if (!llvm::is_contained(inputs, Value())) {
      findUniformResults(linalgOp, inputs);
      return;
    }
  }
  if (type.getNumElements() == 1 && !isa<ToDenseOp>(op))
    setUniform(op->getResult(0),
               tensor::CollapseShapeOp::create(
                   rewriter, loc, scalarType, op->getResult(0),
                   ArrayRef<ReassociationIndices>()));
}

/// Replaces the results of `op`, tensors of rank 0, that are constants by them.
void Propagation::foldScalars(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp || linalgOp.getNumLoops() != 0 || !isElementWise(linalgOp))
    return;
  for (auto [result, yielded] :
       llvm::zip_equal(op->getResults(),
                       linalgOp.getBlock()->getTerminator()->getOperands()))
    if (TypedAttr constant =
            foldBody(linalgOp, linalgOp.getDpsInputs(), yielded))
      rewriter.replaceAllUsesWith(
          result, arith::ConstantOp::create(
                      rewriter, op->getLoc(),
                      DenseElementsAttr::get(cast<ShapedType>(result.getType()),
                                             constant)));
}

/// Computes the scalars of the results of element-wise `op` from the scalars of
/// its inputs.
void Propagation::findUniformResults(linalg::LinalgOp op, ValueRange inputs) {
  SmallVector<Value> computed;
  for (auto [index, yielded] :
       llvm::enumerate(op.getBlock()->getTerminator()->getOperands())) {
    Value scalar;
    auto argument = dyn_cast<BlockArgument>(yielded);
    if (argument && argument.getOwner() == op.getBlock()) {
      scalar = inputs[argument.getArgNumber()];
    } else if (yielded.getParentBlock() != op.getBlock()) {
      scalar = yielded;
    } else if (TypedAttr constant = foldBody(op, inputs, yielded)) {
      scalar = arith::ConstantOp::create(
          rewriter, op.getLoc(),
          DenseElementsAttr::get(RankedTensorType::get({}, yielded.getType()),
                                 constant));
    } else {
      if (computed.empty())
        computed = rebuildElementWise(rewriter, op, inputs, {});
      scalar = computed[index];
    }
    setUniform(op->getResult(index), scalar);
  }
}

bool Propagation::isZero(Value value) const {
  Value scalar = getUniform(value);
  return scalar && matchPattern(scalar, m_AnyZeroFloat());
}

void Propagation::eraseDead(Operation *root, bool isLast) {
  if (isLast) {
    uniforms.clear();
    tensorsOf.clear();
  }
  // A later round may need the scalar of what is still there.
  DenseSet<Operation *> scalars;
  for (auto [value, scalar] : uniforms)
    scalars.insert(scalar.getDefiningOp());
  SmallVector<Operation *> ops;
  root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op != root)
      ops.push_back(op);
    return isa<linalg::LinalgOp>(op) ? WalkResult::skip()
                                     : WalkResult::advance();
  });
  for (Operation *op : llvm::reverse(ops))
    if (isOpTriviallyDead(op) && !scalars.contains(op))
      rewriter.eraseOp(op);
}

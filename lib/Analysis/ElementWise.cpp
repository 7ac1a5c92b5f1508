// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element-wise operations on matrices.

#include "bsr/Analysis/ElementWise.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

/// Why an operation of a body keeps it from being element-wise; "" if it does
/// not.
static StringRef getObstacle(Operation &inner) {
  // What reads a tensor at an index is none: where there is no element, in
  // slots without a block, the index is anything.
  if (isa<linalg::IndexOp>(inner))
    return "its body asks for the place of an element";
  if (llvm::any_of(inner.getOperandTypes(), llvm::IsaPred<ShapedType>))
    return "its body reads a tensor at an index";
  if (inner.getNumRegions() != 0 || !isPure(&inner))
    return "its body has regions or side effects";
  return "";
}

StringRef bsr::getElementWiseObstacle(linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics() || op.hasDynamicShape())
    return "it is not on tensors of static shape";
  if (op.getNumLoops() != op.getNumParallelLoops())
    return "it has sums";
  for (OpOperand &init : op.getDpsInitsMutable()) {
    if (!op.getMatchingIndexingMap(&init).isPermutation())
      return "an element of its result is written several times, or none";
    if (op.payloadUsesValueFromOperand(&init))
      return "its body reads its destination";
  }
  for (Operation &inner : op.getBlock()->without_terminator())
    if (StringRef obstacle = getObstacle(inner); !obstacle.empty())
      return obstacle;
  return "";
}

bool bsr::isElementWise(linalg::LinalgOp op) {
  return getElementWiseObstacle(op).empty();
}

bsr::Access bsr::getAccess(linalg::LinalgOp op, OpOperand &operand,
                           AffineMap resultMap) {
  AffineMap map = op.getMatchingIndexingMap(&operand);
  if (map.getNumResults() == 0)
    return Access::Scalar;
  AffineMap seen = map.compose(inversePermutation(resultMap));
  if (seen.isIdentity())
    return Access::Same;
  if (seen.getNumDims() != 2)
    return Access::Other;
  if (seen.isPermutation())
    return Access::Transposed;
  // A vector, perhaps with dimensions of one entry.
  std::optional<unsigned> along;
  auto type = cast<RankedTensorType>(operand.get().getType());
  for (auto [expr, extent] :
       llvm::zip_equal(seen.getResults(), type.getShape())) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (dim && !along)
      along = dim.getPosition();
    else if (dim || extent != 1)
      return Access::Other;
  }
  if (!along)
    return Access::Other;
  return *along == 0 ? Access::Row : Access::Column;
}

OpOperand *bsr::getYieldedInput(linalg::LinalgOp op) {
  if (op.getNumDpsInits() != 1)
    return nullptr;
  auto yielded =
      dyn_cast<BlockArgument>(op.getBlock()->getTerminator()->getOperand(0));
  return yielded && yielded.getOwner() == op.getBlock() &&
                 yielded.getArgNumber() < op.getNumDpsInputs()
             ? op.getDpsInputOperand(yielded.getArgNumber())
             : nullptr;
}

Value bsr::getPermutedSource(Value value,
                             SmallVectorImpl<int64_t> &permutation) {
  auto op = value.getDefiningOp<linalg::LinalgOp>();
  if (!op || op.getNumDpsInputs() != 1 || !isElementWise(op))
    return {};
  OpOperand *input = getYieldedInput(op);
  if (!input)
    return {};
  AffineMap map = op.getMatchingIndexingMap(input);
  if (!map.isPermutation())
    return {};
  AffineMap source = op.getMatchingIndexingMap(op.getDpsInitOperand(0))
                         .compose(inversePermutation(map));
  permutation.clear();
  for (AffineExpr dim : source.getResults())
    permutation.push_back(cast<AffineDimExpr>(dim).getPosition());
  return input->get();
}

Value bsr::createTranspose(OpBuilder &b, Location loc, Value value,
                           ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> composed(permutation), inner;
  while (Value source = getPermutedSource(value, inner)) {
    composed = applyPermutation(inner, composed);
    value = source;
  }
  if (isIdentityPermutation(composed))
    return value;
  Block::iterator point = b.getInsertionPoint();
  for (Operation *user : value.getUsers())
    if (user->getBlock() == b.getBlock() && user->getNumResults() == 1 &&
        (point == b.getBlock()->end() || user->isBeforeInBlock(&*point)) &&
        getPermutedSource(user->getResult(0), inner) == value &&
        inner == composed)
      return user->getResult(0);
  auto type = cast<RankedTensorType>(value.getType());
  Value empty = tensor::EmptyOp::create(
      b, loc, applyPermutation(type.getShape(), composed),
      type.getElementType());
  return linalg::TransposeOp::create(b, loc, value, empty, composed)
      ->getResult(0);
}

/// True for a tensor of rank 0, and for what is no tensor.
static bool isScalar(Value input) {
  auto type = dyn_cast<RankedTensorType>(input.getType());
  return !type || type.getRank() == 0;
}

AffineMap bsr::getBroadcastMap(OpBuilder &b, Value input,
                               ArrayRef<int64_t> shape) {
  SmallVector<AffineExpr> exprs;
  if (!isScalar(input))
    for (auto [dim, extent] :
         llvm::enumerate(cast<RankedTensorType>(input.getType()).getShape()))
      exprs.push_back(extent == shape[dim] ? b.getAffineDimExpr(dim)
                                           : b.getAffineConstantExpr(0));
  return AffineMap::get(shape.size(), 0, exprs, b.getContext());
}

TypedAttr bsr::getSplat(Value value) {
  Attribute constant;
  if (!matchPattern(value, m_Constant(&constant)))
    return {};
  if (auto elements = dyn_cast<DenseElementsAttr>(constant))
    constant =
        elements.isSplat() ? elements.getSplatValue<Attribute>() : nullptr;
  return dyn_cast_or_null<TypedAttr>(constant);
}

bool bsr::isZeros(Value tensor) {
  while (Operation *producer = tensor.getDefiningOp()) {
    if (auto fill = dyn_cast<linalg::FillOp>(producer))
      return matchPattern(fill.getInputs()[0], m_AnyZeroFloat());
    auto generic = dyn_cast<linalg::GenericOp>(producer);
    if (!generic || generic.getNumDpsInputs() != 1 ||
        !generic.getBody()->without_terminator().empty() ||
        generic.getBody()->getTerminator()->getOperand(0) !=
            generic.getBody()->getArgument(0))
      return matchPattern(tensor, m_AnyZeroFloat());
    tensor = generic.getDpsInputs()[0];
  }
  return false;
}

SmallVector<Value> bsr::rebuildElementWise(OpBuilder &b, linalg::LinalgOp op,
                                           ValueRange inputs,
                                           ArrayRef<int64_t> shape) {
  SmallVector<int64_t> permutation;
  if (getPermutedSource(op->getResult(0), permutation) && !isScalar(inputs[0]))
    return {inputs[0]};

  Location loc = op.getLoc();
  int64_t rank = shape.size();
  AffineMap identity = b.getMultiDimIdentityMap(rank);
  SmallVector<AffineMap> maps;
  // A factor of one folds where the body sees it.
  SmallVector<Value> read;
  SmallVector<TypedAttr> constants;
  for (Value input : inputs) {
    constants.push_back(isScalar(input) ? getSplat(input) : TypedAttr());
    if (constants.back())
      continue;
    read.push_back(input);
    maps.push_back(getBroadcastMap(b, input, shape));
  }
  SmallVector<Value> inits;
  for (Value init : op.getDpsInits()) {
    inits.push_back(tensor::EmptyOp::create(
        b, loc, shape,
        cast<RankedTensorType>(init.getType()).getElementType()));
    maps.push_back(identity);
  }
  auto rebuilt = linalg::GenericOp::create(
      b, loc, ValueRange(inits).getTypes(), read, inits, maps,
      SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel),
      [&](OpBuilder &inner, Location, ValueRange args) {
        IRMapping mapping;
        constants.resize(op.getBlock()->getNumArguments());
        for (auto [from, constant] :
             llvm::zip_equal(op.getBlock()->getArguments(), constants)) {
          mapping.map(from,
                      constant ? arith::ConstantOp::create(inner, loc, constant)
                               : args.front());
          args = args.drop_front(!constant);
        }
        for (Operation &body : op.getBlock()->getOperations())
          inner.clone(body, mapping);
      });
  return SmallVector<Value>(rebuilt.getResults());
}

void bsr::walkElementWise(Value root, function_ref<void(Value, bool)> visit) {
  SmallVector<std::pair<Value, bool>> worklist = {{root, false}};
  DenseSet<Value> seen[2]; // [transposed]
  seen[false].insert(root);
  auto reach = [&](Value value, bool transposed) {
    if (seen[transposed].insert(value).second)
      worklist.push_back({value, transposed});
  };
  while (!worklist.empty()) {
    auto [value, transposed] = worklist.pop_back_val();
    visit(value, transposed);
    auto op = value.getDefiningOp<linalg::LinalgOp>();
    if (!op || !isElementWise(op))
      continue;
    AffineMap map = op.getIndexingMapMatchingResult(cast<OpResult>(value));
    for (OpOperand *operand : op.getDpsInputOperands()) {
      Access access = getAccess(op, *operand, map);
      if (access == Access::Same)
        reach(operand->get(), transposed);
      if (access == Access::Transposed)
        reach(operand->get(), !transposed);
    }
  }
}

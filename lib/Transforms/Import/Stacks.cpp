// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes stacks of matrices apart.

#include "Stacks.h"
#include "Arguments.h"
#include "bsr/Analysis/ElementWise.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::bsr;

static RankedTensorType getTensorType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static int64_t getSize(Value stack) {
  return getTensorType(stack).getDimSize(0);
}

/// The type of the matrices of a stack of type `type`.
static RankedTensorType dropFront(RankedTensorType type) {
  return RankedTensorType::get(type.getShape().drop_front(),
                               type.getElementType());
}

static bool isStack(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() > 0 && type.hasStaticShape();
}

/// The loop that counts the matrices that `map` reads, if there is one.
static std::optional<unsigned> getLoop(AffineMap map) {
  if (map.getNumResults() == 0)
    return std::nullopt;
  if (auto dim = dyn_cast<AffineDimExpr>(map.getResult(0)))
    return dim.getPosition();
  return std::nullopt;
}

/// Whether `map` reads the matrix that loop `loop` counts.
static bool isStep(AffineMap map, unsigned loop) {
  return getLoop(map) == loop;
}

static bool isParallel(linalg::LinalgOp op, unsigned loop) {
  return op.getIteratorTypesArray()[loop] == utils::IteratorType::parallel;
}

static bool usesLoop(AffineMap map, unsigned loop) {
  return llvm::any_of(map.getResults(), [&](AffineExpr expr) {
    return expr.isFunctionOfDim(loop);
  });
}

/// `map` without loop `loop`, whose matrix it reads if it uses it.
static AffineMap dropLoop(AffineMap map, unsigned loop) {
  MLIRContext *context = map.getContext();
  SmallVector<AffineExpr> dims;
  for (unsigned dim : llvm::seq(map.getNumDims()))
    dims.push_back(dim == loop ? getAffineConstantExpr(0, context)
                               : getAffineDimExpr(dim - (dim > loop), context));
  AffineMap dropped =
      map.replaceDimsAndSymbols(dims, {}, map.getNumDims() - 1, 0);
  return isStep(map, loop) ? dropped.dropResult(0) : dropped;
}

/// Whether a slice is whole matrices of a stack of shape `shape`: `sizes[0]` of
/// them, from `offsets[0]` on.
static bool isWhole(OffsetSizeAndStrideOpInterface slice,
                    ArrayRef<int64_t> shape) {
  return !llvm::any_of(slice.getStaticOffsets(), ShapedType::isDynamic) &&
         llvm::all_of(slice.getStaticOffsets().drop_front(),
                      [](int64_t offset) { return offset == 0; }) &&
         slice.getStaticSizes().drop_front() == shape.drop_front() &&
         llvm::all_of(slice.getStaticStrides(),
                      [](int64_t stride) { return stride == 1; });
}

/// Whether a reshape between `from` and `to` keeps the matrices of a stack.
static bool keepsMatrices(RankedTensorType from, RankedTensorType to) {
  return from.getRank() > 0 && to.getRank() > 0 &&
         from.getDimSize(0) == to.getDimSize(0);
}

Value bsr::createReshape(OpBuilder &b, Location loc, Value value,
                         RankedTensorType type) {
  if (value.getType() == type)
    return value;
  auto groups = getReassociationIndicesForReshape(getTensorType(value), type);
  if (!groups)
    return {};
  if (type.getRank() < getTensorType(value).getRank())
    return tensor::CollapseShapeOp::create(b, loc, type, value, *groups);
  return tensor::ExpandShapeOp::create(b, loc, type, value, *groups);
}

bool bsr::canReshape(RankedTensorType from, RankedTensorType to) {
  return from == to || getReassociationIndicesForReshape(from, to);
}

//===----------------------------------------------------------------------===//
// What can be done matrix by matrix
//===----------------------------------------------------------------------===//

void Stacks::add(Value stack, ArrayRef<Value> parts) {
  matrices[stack].assign(parts.begin(), parts.end());
  whole[stack] = stack;
  makeApart(stack);
}

void Stacks::makeApart(Value stack) {
  if (apart.insert(stack).second)
    worklist.push_back(stack);
}

void Stacks::want(Value stack) {
  if (wanted.insert(stack).second)
    worklist.push_back(stack);
}

/// Plans `op`, which computes or reads `stack`, if it can be done matrix by
/// matrix: what it reads is wanted, what it computes is apart.
bool Stacks::plan(Operation *op, Value stack) {
  if (!op || op->getBlock() != &block || planned.contains(op))
    return false;
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return planInsert(insert);
  if (auto extract = dyn_cast<tensor::ExtractSliceOp>(op))
    return planExtract(extract, stack);
  if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op))
    return planReshape(op, stack);
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp || !linalgOp.hasPureTensorSemantics() ||
      linalgOp.hasDynamicShape())
    return false;
  for (OpOperand &operand : op->getOpOperands()) {
    bool isResult = linalgOp.isDpsInit(&operand) &&
                    linalgOp.getTiedOpResult(&operand) == stack;
    if (operand.get() != stack && !isResult)
      continue;
    auto loop = getLoop(linalgOp.getMatchingIndexingMap(&operand));
    if (loop && planSteps(linalgOp, *loop))
      return true;
  }
  return false;
}

/// Whether loop `loop` of `op` can run outermost, over the matrices of the
/// stacks that it uses: one that sums is one sum after the other.
static bool canStep(linalg::LinalgOp op, unsigned loop) {
  WalkResult indexed = op.getBlock()->walk(
      [](linalg::IndexOp) { return WalkResult::interrupt(); });
  if (indexed.wasInterrupted())
    return false;
  return llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
    AffineMap map = op.getMatchingIndexingMap(&operand);
    bool step = isStep(map, loop);
    return !usesLoop(step ? map.dropResult(0) : map, loop) &&
           (!op.isDpsInit(&operand) || step == isParallel(op, loop));
  });
}

bool Stacks::planSteps(linalg::LinalgOp op, unsigned loop) {
  // What only repeats scalars is used by others too, and costs nothing.
  if (llvm::none_of(op.getDpsInputs(), isStack) || !canStep(op, loop))
    return false;
  planned[op] = loop;
  for (OpOperand &operand : op->getOpOperands())
    if (isStep(op.getMatchingIndexingMap(&operand), loop))
      want(operand.get());
  if (isParallel(op, loop))
    for (Value result : op->getResults())
      makeApart(result);
  return true;
}

bool Stacks::planInsert(tensor::InsertSliceOp op) {
  RankedTensorType type = op.getDestType();
  bool isMatrix = op.getSourceType() == dropFront(type);
  if (!isWhole(op, type.getShape()) ||
      (!isMatrix && op.getSourceType().getRank() != type.getRank()))
    return false;
  planned[op] = 0;
  want(op.getDest());
  if (!isMatrix)
    want(op.getSource());
  makeApart(op.getResult());
  return true;
}

bool Stacks::planExtract(tensor::ExtractSliceOp op, Value stack) {
  auto isDynamic = [](ArrayRef<int64_t> values) {
    return llvm::any_of(values, ShapedType::isDynamic);
  };
  if (op.getSource() != stack || isDynamic(op.getStaticOffsets()) ||
      isDynamic(op.getStaticSizes()) || isDynamic(op.getStaticStrides()) ||
      op.getStaticStrides()[0] != 1)
    return false;
  planned[op] = 0;
  if (!op.getDroppedDims().test(0))
    makeApart(op.getResult());
  return true;
}

bool Stacks::planReshape(Operation *op, Value stack) {
  Value source = op->getOperand(0), result = op->getResult(0);
  if (!isStack(source) || !isStack(result))
    return false;
  RankedTensorType from = getTensorType(source), to = getTensorType(result);
  if (keepsMatrices(from, to)) {
    if (!canReshape(dropFront(from), dropFront(to)))
      return false;
    want(source);
    makeApart(result);
  } else if (stack == source) {
    // The only matrix of the stack, in another shape.
    if (from.getDimSize(0) != 1 || !canReshape(dropFront(from), to))
      return false;
  } else {
    if (to.getDimSize(0) != 1 || !canReshape(from, dropFront(to)))
      return false;
    makeApart(result);
  }
  planned[op] = 0;
  return true;
}

void Stacks::takeApart() {
  while (!worklist.empty()) {
    Value stack = worklist.pop_back_val();
    if (!matrices.contains(stack))
      plan(stack.getDefiningOp(), stack);
    if (apart.contains(stack))
      for (Operation *user : stack.getUsers())
        plan(user, stack);
  }

  SmallVector<Operation *> done;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    b.setInsertionPoint(&op);
    if (planned.contains(&op)) {
      rewrite(&op);
      done.push_back(&op);
      continue;
    }
    op.walk([&](Operation *inner) {
      for (OpOperand &operand : inner->getOpOperands())
        operand.set(getWhole(operand.get()));
    });
  }
  for (Operation *op : llvm::reverse(done))
    op->erase();
}

//===----------------------------------------------------------------------===//
// Matrix by matrix
//===----------------------------------------------------------------------===//

void Stacks::rewrite(Operation *op) {
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return rewriteInsert(insert);
  if (auto extract = dyn_cast<tensor::ExtractSliceOp>(op))
    return rewriteExtract(extract);
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return rewriteSteps(linalgOp, planned.lookup(op));
  rewriteReshape(op);
}

/// f(a, b)[i] -> f(a[i], b), and sum f(a, b) -> f(a[n], b) + ... + f(a[0], b)
///
/// for loops over matrices that are parallel, and for those that are not.
void Stacks::rewriteSteps(linalg::LinalgOp op, unsigned loop) {
  int64_t count = op.getStaticLoopRanges()[loop];
  if (isParallel(op, loop)) {
    for (int64_t i : llvm::seq(count)) {
      SmallVector<Value> inits;
      for (OpOperand &init : op.getDpsInitsMutable()) {
        RankedTensorType type = dropFront(getTensorType(init.get()));
        inits.push_back(op.payloadUsesValueFromOperand(&init)
                            ? getMatrix(init.get(), i)
                            : tensor::EmptyOp::create(b, op.getLoc(),
                                                      type.getShape(),
                                                      type.getElementType()));
      }
      for (auto [result, matrix] :
           llvm::zip_equal(op->getResults(), createStep(op, loop, i, inits)))
        matrices[result].push_back(matrix);
    }
    return;
  }
  SmallVector<Value> sums;
  for (Value init : op.getDpsInits())
    sums.push_back(getWhole(init));
  for (int64_t i : llvm::seq(count))
    sums = createStep(op, loop, i, sums);
  op->replaceAllUsesWith(sums);
}

/// insert(x, into s, at i)[i] -> x; [j] -> s[j]
void Stacks::rewriteInsert(tensor::InsertSliceOp op) {
  SmallVector<Value> parts;
  int64_t first = op.getStaticOffset(0), count = op.getStaticSize(0);
  bool isMatrix = op.getSourceType().getRank() < op.getDestType().getRank();
  for (int64_t i : llvm::seq(getSize(op)))
    parts.push_back(i < first || i >= first + count ? getMatrix(op.getDest(), i)
                    : isMatrix                      ? getWhole(op.getSource())
                               : getMatrix(op.getSource(), i - first));
  matrices[op.getResult()] = parts;
}

/// extract(s, from i) [j] -> s[i + j], or a part of that matrix
void Stacks::rewriteExtract(tensor::ExtractSliceOp op) {
  bool isMatrix = op.getDroppedDims().test(0);
  auto type = isMatrix ? op.getType() : dropFront(op.getType());
  auto tail = [&](ArrayRef<int64_t> values) {
    return getAsIndexOpFoldResult(b.getContext(), values.drop_front());
  };
  SmallVector<Value> parts;
  for (int64_t i : llvm::seq(op.getStaticSize(0))) {
    Value matrix = getMatrix(op.getSource(), op.getStaticOffset(0) + i);
    if (!isWhole(op, op.getSourceType().getShape()) || matrix.getType() != type)
      matrix = tensor::ExtractSliceOp::create(
          b, op.getLoc(), type, matrix, tail(op.getStaticOffsets()),
          tail(op.getStaticSizes()), tail(op.getStaticStrides()));
    parts.push_back(matrix);
  }
  if (isMatrix)
    op.replaceAllUsesWith(parts[0]);
  else
    matrices[op.getResult()] = parts;
}

/// reshape(s)[i] -> reshape(s[i])
void Stacks::rewriteReshape(Operation *op) {
  Value source = op->getOperand(0), result = op->getResult(0);
  RankedTensorType from = getTensorType(source), to = getTensorType(result);
  if (keepsMatrices(from, to)) {
    SmallVector<Value> parts;
    for (int64_t i : llvm::seq(getSize(result)))
      parts.push_back(
          createReshape(b, op->getLoc(), getMatrix(source, i), dropFront(to)));
    matrices[result] = parts;
  } else if (apart.contains(result)) {
    matrices[result] = {
        createReshape(b, op->getLoc(), getWhole(source), dropFront(to))};
  } else {
    result.replaceAllUsesWith(
        createReshape(b, op->getLoc(), getMatrix(source, 0), to));
  }
}

/// Step `index` of loop `loop` of `op`; an operation that only copies then is
/// left out. (Upstream's tiling would slice the operands; a matrix of a stack
/// has to be the value itself here.)
SmallVector<Value> Stacks::createStep(linalg::LinalgOp op, unsigned loop,
                                      int64_t index, ValueRange inits) {
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  for (OpOperand *operand : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(operand);
    inputs.push_back(isStep(map, loop) ? getMatrix(operand->get(), index)
                                       : getWhole(operand->get()));
    maps.push_back(dropLoop(map, loop));
  }
  for (OpOperand &init : op.getDpsInitsMutable())
    maps.push_back(dropLoop(op.getMatchingIndexingMap(&init), loop));
  if (isa<linalg::FillOp>(op))
    return linalg::FillOp::create(b, op.getLoc(), inputs, inits)->getResults();
  if (OpOperand *yielded = getYieldedInput(op)) {
    unsigned number = yielded->getOperandNumber();
    if (maps[number].isIdentity() && maps.back().isIdentity() &&
        inputs[number].getType() == inits[0].getType())
      return {inputs[number]};
  }

  SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
  iterators.erase(iterators.begin() + loop);
  return linalg::GenericOp::create(
             b, op.getLoc(), inits.getTypes(), inputs, inits, maps, iterators,
             [&](OpBuilder &inner, Location, ValueRange args) {
               IRMapping mapping;
               mapping.map(op.getBlock()->getArguments(), args);
               for (Operation &body : *op.getBlock())
                 inner.clone(body, mapping);
             })
      ->getResults();
}

Value Stacks::getMatrix(Value stack, int64_t index) {
  SmallVector<Value> &parts = matrices[stack];
  parts.resize(getSize(stack));
  if (!parts[index]) {
    Value matrix = createMatrix(stack, index); // may move `parts`
    matrices[stack][index] = matrix;
  }
  return matrices[stack][index];
}

/// Matrix `index` of a stack that is computed as a whole.
Value Stacks::createMatrix(Value stack, int64_t index) {
  RankedTensorType type = dropFront(getTensorType(stack));
  Location loc = stack.getLoc();
  DenseElementsAttr constant;
  if (stack.getDefiningOp<tensor::EmptyOp>())
    return tensor::EmptyOp::create(b, loc, type.getShape(),
                                   type.getElementType());
  if (matchPattern(stack, m_Constant(&constant)) && constant.isSplat())
    return arith::ConstantOp::create(b, loc, constant.resizeSplat(type));
  if (auto op = stack.getDefiningOp<linalg::LinalgOp>();
      op && op.hasPureTensorSemantics() && op->getNumResults() == 1 &&
      llvm::none_of(op.getDpsInputs(), isStack)) {
    OpOperand *init = op.getDpsInitOperand(0);
    auto loop = getLoop(op.getMatchingIndexingMap(init));
    if (loop && canStep(op, *loop) && !op.payloadUsesValueFromOperand(init))
      return createStep(op, *loop, index,
                        {tensor::EmptyOp::create(b, loc, type.getShape(),
                                                 type.getElementType())})[0];
  }
  return Partition::ofStack(getSize(stack)).extract(b, loc, stack, index);
}

/// `value` as one tensor, if it is a stack that was taken apart.
Value Stacks::getWhole(Value value) {
  if (!apart.contains(value))
    return value;
  Value &stack = whole[value];
  if (stack)
    return stack;
  Location loc = (*b.getInsertionPoint()).getLoc();
  stack =
      Partition::ofStack(getSize(value)).join(b, loc, matrices.lookup(value));
  return stack;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products, as matrices whose rows and columns lie anywhere in memory.

#include "DenseContraction.h"
#include "bsr/Codegen/GPU/Core/Reshapes.h"
#include "bsr/Codegen/GPU/Core/StridedView.h"
#include "bsr/Codegen/GPU/Core/TensorCores.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

DenseContraction::Group
DenseContraction::makeGroup(llvm::function_ref<bool(unsigned)> isIn) const {
  Group group;
  for (auto [loop, extent] : llvm::enumerate(extents))
    if (isIn(loop)) {
      group.loops.push_back(loop);
      group.size *= extent;
    }
  return group;
}

bool DenseContraction::makeLast(Group &group, unsigned loop) {
  auto *found = llvm::find(group.loops, loop);
  if (found == group.loops.end())
    return false;
  std::rotate(found, found + 1, group.loops.end());
  return true;
}

void DenseContraction::moveToBatch(Group &own, AffineMap map) {
  auto getDim = [&](unsigned loop) {
    return *map.getResultPosition(getAffineDimExpr(loop, map.getContext()));
  };
  auto isBefore = [&](unsigned a, unsigned b) { return getDim(a) < getDim(b); };
  SmallVector<unsigned> sorted(own.loops);
  llvm::sort(sorted, isBefore);
  for (size_t i = sorted.size(); i > 1; --i) {
    if (getDim(sorted[i - 2]) + 1 == getDim(sorted[i - 1]))
      continue;
    for (unsigned loop : ArrayRef(sorted).take_front(i - 1)) {
      llvm::erase(own.loops, loop);
      own.size /= extents[loop];
      batch.loops.push_back(loop);
      batch.size *= extents[loop];
    }
    llvm::sort(batch.loops, isBefore);
    return;
  }
}

bool DenseContraction::setSide(Side &side, Value tensor, AffineMap map,
                               Group &own) {
  StridedView view = StridedView::get(tensor);
  if (!view.isCopied())
    return false;
  side.tensor = view.buffer;
  side.offset = view.offset;
  side.strides.assign(extents.size(), 0);
  for (auto [dim, stride] : llvm::enumerate(view.strides))
    side.strides[map.getDimPosition(dim)] = stride;
  unsigned last = map.getDimPosition(view.strides.size() - 1);
  side.isInnerLast = makeLast(inner, last);
  if (!side.isInnerLast && !makeLast(own, last))
    return false;
  std::optional<int64_t> copied =
      view.getCopied(getElementBytes(), extents[last]);
  side.copied = copied.value_or(0);
  return copied.has_value();
}

bool DenseContraction::setResultOrder(AffineMap map) {
  for (unsigned dim = 0; dim != map.getNumResults();) {
    const auto *group = llvm::find_if(
        ArrayRef(resultGroups), [&](Group DenseContraction::*group) {
          ArrayRef<unsigned> loops = (this->*group).loops;
          return !loops.empty() && loops.front() == map.getDimPosition(dim);
        });
    if (group == std::end(resultGroups))
      return false;
    for (unsigned loop : (this->**group).loops)
      if (dim == map.getNumResults() || map.getDimPosition(dim++) != loop)
        return false;
    resultOrder.push_back(*group);
  }
  return true;
}

/// True if the body of `op` adds the product of two elements, which are widened
/// if they are no f32.
static bool hasProductBody(linalg::GenericOp op) {
  Block *body = op.getBody();
  auto sum =
      body->getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!sum)
    return false;
  Value accumulator = body->getArgument(2);
  Value term = sum.getLhs() == accumulator ? sum.getRhs() : sum.getLhs();
  auto product = term.getDefiningOp<arith::MulFOp>();
  if (!product || (sum.getLhs() != accumulator && sum.getRhs() != accumulator))
    return false;
  auto isElement = [&](Value value, unsigned operand) {
    if (auto widened = value.getDefiningOp<arith::ExtFOp>())
      value = widened.getIn();
    return value == body->getArgument(operand);
  };
  return (isElement(product.getLhs(), 0) && isElement(product.getRhs(), 1)) ||
         (isElement(product.getLhs(), 1) && isElement(product.getRhs(), 0));
}

/// True if `value` is zero, or a tensor of zeros.
static bool isZero(Value value) {
  // Operations that fill a tensor with what they read.
  while (auto fill = value.getDefiningOp<linalg::LinalgOp>()) {
    Value filled = fill.getBlock()->getTerminator()->getOperand(0);
    auto argument = dyn_cast<BlockArgument>(filled);
    if (fill->getNumResults() != 1 || !argument ||
        argument.getOwner() != fill.getBlock() ||
        argument.getArgNumber() >= fill.getNumDpsInputs())
      return false;
    value = fill->getOperand(argument.getArgNumber());
  }
  return matchPattern(value, m_AnyZeroFloat());
}

std::optional<DenseContraction> DenseContraction::match(Operation *root) {
  if (auto op = dyn_cast<linalg::GenericOp>(root))
    return matchProduct(op);
  if (auto op = dyn_cast<BlockScoresOp>(root))
    return matchScores(op);
  return std::nullopt;
}

std::optional<DenseContraction>
DenseContraction::matchScores(BlockScoresOp op) {
  auto rows = Activations::match(op.getA(), op.getFeatureDim());
  auto cols = Activations::match(op.getB(), op.getFeatureDim());
  Type type = op.getA().getType().getElementType();
  if (!rows || !cols || (!isMultiplied(type) && !type.isF32()) ||
      op.getB().getType().getElementType() != type)
    return std::nullopt;
  DenseContraction operands;
  operands.norms = BlockNorms::match(op);
  if (!operands.norms)
    return std::nullopt;
  operands.op = op;
  operands.type = type;
  // Inner numbers are the tokens of all batches.
  enum Loop : unsigned { Batch, Token, Row, Col };
  operands.extents = {rows->batches, rows->tokens, rows->features,
                      cols->features};
  operands.rows = {{Row}, rows->features};
  operands.cols = {{Col}, cols->features};
  operands.inner = {{Token}, rows->batches * rows->tokens};
  if (rows->batches != 1)
    operands.inner.loops = {Batch, Token};
  auto makeSide = [&](Value tensor, const Activations &x, Loop own) {
    Side side{skipReshapes(tensor), /*offset=*/0,
              SmallVector<int64_t>(operands.extents.size(), 0),
              /*isInnerLast=*/true, copiedBytes / operands.getElementBytes()};
    side.strides[Batch] = x.features * x.tokens;
    side.strides[Token] = 1;
    side.strides[own] = x.tokens;
    return side;
  };
  operands.left = makeSide(op.getA(), *rows, Row);
  operands.right = makeSide(op.getB(), *cols, Col);
  operands.resultOrder = {&DenseContraction::rows, &DenseContraction::cols};
  return operands;
}

std::optional<DenseContraction>
DenseContraction::matchProduct(linalg::GenericOp op) {
  if (op.getNumDpsInputs() != 2 || op->getNumResults() != 1 ||
      !hasProductBody(op) || !isZero(op.getDpsInits()[0]) ||
      !llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) {
        return map.getNumResults() != 0 && map.isProjectedPermutation();
      }))
    return std::nullopt;
  auto getElement = [&](unsigned operand) {
    return getElementTypeOrSelf(op->getOperand(operand).getType());
  };
  auto result = cast<RankedTensorType>(op.getResult(0).getType());
  DenseContraction operands;
  operands.op = op;
  operands.type = getElement(0);
  if ((!isMultiplied(operands.type) && !operands.type.isF32()) ||
      getElement(1) != operands.type || !result.getElementType().isF32() ||
      result.getNumElements() > INT32_MAX)
    return std::nullopt;
  operands.extents = op.getStaticLoopRanges();
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  // Sums are stored in vectors along the last dimension of the result, which is
  // the right operand's.
  unsigned last = maps[2].getDimPosition(maps[2].getNumResults() - 1);
  unsigned right = maps[1].isFunctionOfDim(last) ? 1 : 0, left = 1 - right;
  auto makeGroup = [&](bool isLeft, bool isRight, bool isResult) {
    return operands.makeGroup([&](unsigned loop) {
      return maps[left].isFunctionOfDim(loop) == isLeft &&
             maps[right].isFunctionOfDim(loop) == isRight &&
             maps[2].isFunctionOfDim(loop) == isResult;
    });
  };
  operands.batch = makeGroup(true, true, true);
  operands.rows = makeGroup(true, false, true);
  operands.cols = makeGroup(false, true, true);
  operands.inner = makeGroup(true, true, false);
  operands.moveToBatch(operands.rows, maps[2]);
  operands.moveToBatch(operands.cols, maps[2]);
  size_t numLoops = operands.batch.loops.size() + operands.rows.loops.size() +
                    operands.cols.loops.size() + operands.inner.loops.size();
  if (numLoops != operands.extents.size() ||
      !operands.makeLast(operands.cols, last) ||
      !operands.setSide(operands.left, op->getOperand(left), maps[left],
                        operands.rows) ||
      !operands.setSide(operands.right, op->getOperand(right), maps[right],
                        operands.cols) ||
      operands.cols.loops.back() != last)
    return std::nullopt;
  // One order of inner numbers has to do for both.
  if (operands.left.isInnerLast &&
      operands.left.strides[operands.inner.loops.back()] != 1)
    return std::nullopt;
  // In the result each group is one dimension.
  if (!operands.setResultOrder(maps[2]))
    return std::nullopt;
  return operands;
}

std::optional<ResultSpace>
DenseContraction::getSpace(int64_t warpColumns) const {
  if (norms || !Epilogue::accepts(getType()) || rows.loops.empty())
    return std::nullopt;
  ResultSpace space{{}, 0, warpColumns};
  int64_t dim = 0;
  for (auto [number, group] : llvm::enumerate(resultOrder)) {
    if (group == &DenseContraction::rows)
      space.row = number;
    int64_t end = dim + int64_t((this->*group).loops.size());
    space.dims.push_back(llvm::to_vector<2>(llvm::seq(dim, end)));
    dim = end;
  }
  return space;
}

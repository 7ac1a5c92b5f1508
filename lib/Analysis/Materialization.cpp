// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Splits a block into operations with results in memory and operations that
// are computed at each use.

#include "bsr/Analysis/Materialization.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/Windows.h"
#include "bsr/Dialect/Attention.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

/// True for views and constants, which are always computed where they are used.
static bool isNeverKept(Operation *op) {
  return !isa<linalg::GenericOp>(op) && isInlinable(op);
}

/// The cost of the body of `op` per element, in simple operations.
static int64_t getBodyCost(linalg::GenericOp op) {
  int64_t cost = 0;
  for (Operation &inner : op.getBody()->without_terminator()) {
    if (isa<math::SqrtOp, math::RsqrtOp, arith::DivFOp>(inner))
      cost += 4;
    else if (isa<math::MathDialect>(inner.getDialect()) ||
             isa<tensor::ExtractOp>(inner))
      cost += 12;
    else if (!isa<arith::ConstantOp, linalg::IndexOp>(inner))
      ++cost;
  }
  return cost;
}

int64_t bsr::getNumPoints(linalg::GenericOp op) {
  int64_t points = 1;
  for (int64_t range : op.getStaticLoopRanges())
    points *= range;
  return points;
}

Materialization::Materialization(Block &block, TargetCosts costs)
    : limits(costs) {
  // Of windows in a line, vectors along tokens lie side by side.
  bool readsLines = getTarget(block.getParentOp()).wantsTokensLast();
  for (Operation &op : block.without_terminator()) {
    if (readsLines && (areReadInLine(&op) || areSummedUp(&op))) {
      inlined.insert(&op);
      continue;
    }
    if (isNeverKept(&op) || !canCompute(&op))
      continue;
    if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
      this->costs[&op] = getBodyCost(generic) + addInlinedCosts(generic);
      if (canInline(generic) && !(readsLines && SummedWindows::get(generic))) {
        inlined.insert(&op);
        continue;
      }
    }
    roots.insert(&op);
  }
}

bool Materialization::isInlined(Operation *op) const {
  // What bodies are made of is known of those of the block.
  return inlined.contains(op) || (!roots.contains(op) && isInlinable(op));
}

bool Materialization::isLeaf(Value value) const {
  Operation *op = value.getDefiningOp();
  return !op || !isInlined(op);
}

/// The costs of what is inlined into `op`, each once; what has fewer elements
/// is computed outside of the innermost loops.
int64_t Materialization::addInlinedCosts(linalg::GenericOp op) const {
  int64_t cost = 0;
  SetVector<Operation *> visited;
  auto add = [&](auto &self, Value value) -> void {
    Operation *producer = value.getDefiningOp();
    if (!producer || roots.contains(producer) || !visited.insert(producer))
      return;
    auto known = costs.find(producer);
    if (known != costs.end()) {
      auto generic = cast<linalg::GenericOp>(producer);
      if (getNumPoints(generic) >= getNumPoints(op))
        cost += known->second;
    } else if (isNeverKept(producer)) {
      for (Value operand : producer->getOperands())
        self(self, operand);
    }
  };
  for (Value operand : op->getOperands())
    add(add, operand);
  return cost;
}

/// True for the bias, the mask and the factor of an attention, of which kernels
/// read an element for each score.
static bool isOfScores(OpOperand &use) {
  std::optional<Attention> attention = getAttention(use.getOwner());
  return attention && (use.get() == attention->bias.tensor ||
                       use.get() == attention->mask.tensor ||
                       use.get() == attention->factor.tensor);
}

bool Materialization::getConsumers(Value value,
                                   SetVector<Operation *> &consumers) const {
  bool inMemory = false;
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    if (isNeverKept(user)) {
      inMemory |= getConsumers(user->getResult(0), consumers);
      continue;
    }
    if (inlined.contains(user) && isa<tensor::ConcatOp>(user)) {
      inMemory = true;
      continue;
    }
    // A use in a body (tensor.extract) belongs to the operation around it.
    Operation *parent = user;
    while (parent->getBlock() != value.getParentBlock())
      parent = parent->getParentOp();
    consumers.insert(parent);
    auto generic = dyn_cast<linalg::GenericOp>(parent);
    bool isElements = generic || isa<tensor::ConcatOp, ReduceVecOp>(parent) ||
                      isOfScores(use);
    bool isInside = parent == user || isa<tensor::ExtractOp>(user);
    inMemory |= !isInside || !isElements || !canCompute(parent);
  }
  return inMemory;
}

/// True if `op` is a product that is one piece of a concatenation and nothing
/// else: it is computed where it belongs in the whole.
static bool isPiece(linalg::GenericOp op) {
  if (!linalg::isaContractionOpInterface(op))
    return false;
  Value value = op->getResult(0);
  while (value.hasOneUse() && isa<tensor::CollapseShapeOp>(*value.user_begin()))
    value = value.user_begin()->getResult(0);
  return value.hasOneUse() && isa<tensor::ConcatOp>(*value.user_begin()) &&
         canCompute(*value.user_begin()) && getPieceProducer(value) == op;
}

/// True if `op` rounds the sums of a reduction and does nothing else: halves
/// are read then, not what they are rounded from.
static bool isRoundedSum(linalg::GenericOp op) {
  Block *body = op.getBody();
  auto sum = op.getNumDpsInputs() == 1
                 ? op.getDpsInputs().front().getDefiningOp<linalg::GenericOp>()
                 : linalg::GenericOp();
  return sum && sum.getNumReductionLoops() &&
         llvm::hasSingleElement(body->without_terminator()) &&
         isa<arith::TruncFOp>(body->front());
}

bool Materialization::canInline(linalg::GenericOp op) {
  if (isPiece(op))
    return true;
  if (!isPointwise(op) || op->getNumResults() != 1 || isRoundedSum(op) ||
      attrs::stored.isOn(op))
    return false;
  SetVector<Operation *> consumers;
  if (getConsumers(op->getResult(0), consumers))
    return false;
  int64_t cost = costs[op];
  if (cost > (consumers.size() == 1 ? limits.singleUse : limits.everyUse))
    return false;
  return llvm::all_of(consumers, [&](Operation *user) {
    auto consumer = dyn_cast<linalg::GenericOp>(user);
    if (!consumer || getNumPoints(consumer) <= getNumPoints(op))
      return true;
    // In the loops of a product, or broadcast.
    return cost <= (consumer.getNumReductionLoops() ? 0 : limits.broadcast);
  });
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes cheap values again behind the point where most memory is live.

#include "StoredValues.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Materialization.h"
#include "bsr/Analysis/Order.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Clusters/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRRECOMPUTE
#include "bsr/Transforms/Clusters/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Moves each sampled product of `block` behind the last other use of its later
/// operand, the gradient: no value lives longer for it, and what is computed
/// again for the other operand can be computed there.
static void sinkSampledProducts(Block &block) {
  // Where all else is, which stays.
  DenseMap<Operation *, size_t> positions;
  for (auto [position, op] : llvm::enumerate(block))
    positions[&op] = position;
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    if (!isa<SDDMMOp, BlockScoresOp>(op))
      continue;
    Operation *later = nullptr;
    for (Value operand : op.getOperands())
      if (Operation *producer = operand.getDefiningOp();
          producer && isa<RankedTensorType>(operand.getType()) &&
          (!later || positions[later] < positions[producer]))
        later = producer;
    Operation *after = &op;
    if (later)
      for (Operation *user : later->getUsers()) {
        Operation *at = block.findAncestorOpInBlock(*user);
        if (!isa<SDDMMOp, BlockScoresOp>(at) &&
            !at->hasTrait<OpTrait::IsTerminator>() &&
            positions[after] < positions[at])
          after = at;
      }
    if (llvm::all_of(op.getUsers(), [&](Operation *user) {
          return positions[after] <
                 positions[block.findAncestorOpInBlock(*user)];
        }))
      op.moveAfter(after);
  }
}

/// The first operation of `block` that uses `value`, or null.
static Operation *getFirstUser(Block &block, Value value, const Order &order) {
  Operation *first = nullptr;
  for (Operation *user : value.getUsers()) {
    Operation *at = block.findAncestorOpInBlock(*user);
    if (!first || order.isBefore(at, first))
      first = at;
  }
  return first;
}

/// Moves each dense product that takes more than twice the memory of its
/// operands, as the gradient of a large embedding does, to where it is used
/// first: it is its operands that wait. What converts it element by element,
/// and is all that uses it, goes with it.
static void sinkLargeProducts(Block &block) {
  Order order(block);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    auto product = dyn_cast<linalg::GenericOp>(op);
    if (!product || !linalg::isaContractionOpInterface(product))
      continue;
    SmallVector<Operation *> moved{&op};
    Value result = op.getResult(0);
    while (result.hasOneUse()) {
      auto next = dyn_cast<linalg::GenericOp>(*result.user_begin());
      if (!next || next->getBlock() != &block || !isPointwise(next) ||
          next.getNumDpsInputs() != 1 || next->getNumResults() != 1)
        break;
      moved.push_back(next);
      result = next->getResult(0);
    }
    int64_t operands = 0;
    for (Value input : product.getDpsInputs())
      operands += getTensorBytes(input);
    Operation *user = getFirstUser(block, result, order);
    if (!user || getTensorBytes(result) <= 2 * operands)
      continue;
    for (Operation *each : moved)
      order.moveBefore(each, user);
  }
}

/// True for what kernels compute where it is used, and copies of which make
/// sense: element-wise operations and views.
static bool isCopied(Operation *op, const Materialization &roots) {
  return !roots.contains(op) && op->getNumOperands() != 0 && isInlinable(op) &&
         (!isa<linalg::GenericOp>(op) || isPointwise(op));
}

/// Calls `callback` with what makes the operands of `op` and of what is in it.
static void forEachProducer(Operation *op,
                            llvm::function_ref<void(Operation *)> callback) {
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (Operation *producer = operand.getDefiningOp())
        callback(producer);
  });
}

namespace {
/// Copies what is computed in front of the peak of memory for what is behind.
class Copies {
public:
  Copies(Block &block, const Materialization &roots, Operation *peak)
      : block(block), roots(roots), order(block) {
    for (Operation *op = &block.front(); op != peak; op = op->getNextNode())
      early.insert({op, early.size()});
    early.insert({peak, early.size()});
  }

  /// Gives the users of `op` behind the peak a copy of it, right before the
  /// first of them. Returns the copy, or null if there is no such user.
  Operation *copy(Operation *op);

  /// Lets what reads e behind the peak read q * s, where `op` computes
  /// q = e / s.
  void multiply(linalg::GenericOp op);

  /// Copies what is inlined into operations behind the peak, into `user` alone
  /// if there is one.
  void copyInlined(Operation *user = nullptr);

private:
  bool isLate(Operation *user) const {
    return !early.contains(block.findAncestorOpInBlock(*user));
  }
  Operation *getFirstLate(Operation *op) const;
  Operation *cloneBefore(Operation *place, Operation *op);

  Block &block;
  const Materialization &roots;
  Order order;
  /// The operations up to the peak, and where they are.
  DenseMap<Operation *, size_t> early;
};
} // namespace

/// The first operation behind the peak that uses `op`, or null.
Operation *Copies::getFirstLate(Operation *op) const {
  Operation *first = nullptr;
  for (Operation *user : op->getUsers()) {
    Operation *at = block.findAncestorOpInBlock(*user);
    if (isLate(at) && (!first || order.isBefore(at, first)))
      first = at;
  }
  return first;
}

Operation *Copies::cloneBefore(Operation *place, Operation *op) {
  Operation *copy = OpBuilder(place).clone(*op);
  order.add(copy);
  return copy;
}

void Copies::multiply(linalg::GenericOp op) {
  Value dividend = op->getOperand(0);
  Operation *first = getFirstLate(dividend.getDefiningOp());
  auto product = cast<linalg::GenericOp>(cloneBefore(first, op));
  product->setOperand(0, op->getResult(0));
  Operation *quotient = &product.getBody()->front();
  OpBuilder b(quotient);
  Value result = arith::MulFOp::create(
      b, quotient->getLoc(), quotient->getOperand(0), quotient->getOperand(1));
  quotient->getResult(0).replaceAllUsesWith(result);
  quotient->erase();
  dividend.replaceUsesWithIf(product->getResult(0), [&](OpOperand &use) {
    return isLate(use.getOwner());
  });
}

Operation *Copies::copy(Operation *op) {
  Operation *first = getFirstLate(op);
  if (!first)
    return nullptr;
  Operation *copy = cloneBefore(first, op);
  for (auto [from, to] : llvm::zip_equal(op->getResults(), copy->getResults()))
    from.replaceUsesWithIf(
        to, [&](OpOperand &use) { return isLate(use.getOwner()); });
  return copy;
}

void Copies::copyInlined(Operation *user) {
  SetVector<Operation *> ops;
  if (!user) {
    for (auto [op, position] : early)
      if (isCopied(op, roots))
        ops.insert(op);
  } else {
    auto add = [&](Operation *op) {
      if (early.contains(op) && isCopied(op, roots))
        ops.insert(op);
    };
    forEachProducer(user, add);
    for (size_t next = 0; next != ops.size(); ++next)
      forEachProducer(ops[next], add);
  }
  // Users first: copies of them use copies of what they are computed from.
  SmallVector<Operation *> sorted = ops.takeVector();
  llvm::sort(sorted, [&](Operation *a, Operation *b) {
    return early.lookup(a) > early.lookup(b);
  });
  for (Operation *op : sorted) {
    copy(op);
    if (!isOpTriviallyDead(op))
      continue;
    early.erase(op);
    order.erase(op);
    op->erase();
  }
}

/// Moves what is inlined to where it is used first.
static void sinkInlined(Block &block, const Materialization &roots) {
  DenseMap<Operation *, size_t> positions;
  for (auto [position, op] : llvm::enumerate(block))
    positions[&op] = position;
  SmallVector<Operation *> order;
  DenseSet<Operation *> placed;
  // The last ones that an operation uses come first.
  auto place = [&](auto &self, Operation *op) -> void {
    if (!placed.insert(op).second)
      return;
    SmallVector<Operation *> producers;
    forEachProducer(op, [&](Operation *producer) {
      if (producer->getBlock() == &block && isCopied(producer, roots))
        producers.push_back(producer);
    });
    llvm::sort(producers, [&](Operation *a, Operation *b) {
      return positions.lookup(a) > positions.lookup(b);
    });
    for (Operation *producer : producers)
      self(self, producer);
    order.push_back(op);
  };
  for (Operation &op : block)
    if (!isCopied(&op, roots) || op.use_empty())
      place(place, &op);
  for (Operation *op : order)
    op->moveBefore(&block, block.end());
}

namespace {
struct Recompute : bsr::impl::BSRRecomputeBase<Recompute> {
  using Base::Base;

  LogicalResult initialize(MLIRContext *context) override {
    if (maxCost >= 0)
      return success();
    return emitError(UnknownLoc::get(context),
                     "expected max-cost to be 0 or greater, but got ")
           << maxCost.getValue();
  }

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isDeclaration() || !func.isPublic() ||
        !func.getBody().hasOneBlock())
      return;
    Block &block = func.getBody().front();
    TargetCosts costs = getTarget(func).getCosts();
    sinkSampledProducts(block);
    {
      StoredValues memory(block, costs);
      if (memory.values.empty())
        return;
      Copies(block, memory.getRoots(), memory.getPeak()).copyInlined();
      sinkInlined(block, memory.getRoots());
      sinkLargeProducts(block);
    }
    {
      StoredValues memory(block, costs);
      Copies copies(block, memory.getRoots(), memory.getPeak());
      for (linalg::GenericOp quotient : memory.getQuotients())
        if (decide("bsr-recompute", quotient))
          copies.multiply(quotient);
    }
    StoredValues memory(block, costs);
    Operation *peak = memory.getPeak();
    attrs::peak.set(peak, UnitAttr::get(&getContext()));
    Copies copies(block, memory.getRoots(), peak);
    for (Value value : memory.choose(maxCost)) {
      if (!decide("bsr-recompute", value.getDefiningOp()))
        continue;
      Operation *copy = copies.copy(value.getDefiningOp());
      if (!copy)
        continue;
      attrs::recomputed.set(copy, UnitAttr::get(&getContext()));
      // With what is inlined into it.
      copies.copyInlined(copy);
      ++numRecomputed;
      bytesRecomputed += getTensorBytes(value);
      PassRemark::passed("bsr-recompute", "Recomputed", copy)
          .add("Operation", copy->getName())
          .add("Bytes", getTensorBytes(value));
    }
  }
};
} // namespace

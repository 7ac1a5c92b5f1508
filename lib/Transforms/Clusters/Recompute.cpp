// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes cheap values again behind the point where most memory is live.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Kernels.h"
#include "bsr/Analysis/LiveRanges.h"
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

/// The operation of `block` around `op`, or `op` itself.
static Operation *getAncestor(Block &block, Operation *op) {
  return block.findAncestorOpInBlock(*op);
}

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
        Operation *at = getAncestor(block, user);
        if (!isa<SDDMMOp, BlockScoresOp>(at) &&
            !at->hasTrait<OpTrait::IsTerminator>() &&
            positions[after] < positions[at])
          after = at;
      }
    if (llvm::all_of(op.getUsers(), [&](Operation *user) {
          return positions[after] < positions[getAncestor(block, user)];
        }))
      op.moveAfter(after);
  }
}

static int64_t getBytes(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.hasStaticShape() || !type.getElementType().isIntOrFloat())
    return 0;
  return type.getNumElements() *
         llvm::divideCeil(type.getElementTypeBitWidth(), 8);
}

/// The first operation of `block` that uses `value`, or null.
static Operation *getFirstUser(Block &block, Value value, const Order &order) {
  Operation *first = nullptr;
  for (Operation *user : value.getUsers()) {
    Operation *at = getAncestor(block, user);
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
      operands += getBytes(input);
    Operation *user = getFirstUser(block, result, order);
    if (!user || getBytes(result) <= 2 * operands)
      continue;
    for (Operation *each : moved)
      order.moveBefore(each, user);
  }
}

namespace {
/// The values of a block that lie in memory, and when.
class Memory {
public:
  Memory(Block &block, TargetCosts costs);

  /// A value that a root computes: where it is computed and where roots read
  /// it, rising.
  struct Stored {
    int64_t begin;
    SmallVector<int64_t> reads;
    int64_t bytes;
    /// Where it is computed again; something else is computed again from it.
    std::optional<int64_t> again = {};
    bool isKept = false;
  };

  /// The stored values, in program order.
  llvm::MapVector<Value, Stored> values;
  const Materialization &getRoots() const { return roots; }
  /// The operation at which most bytes are live.
  Operation *getPeak() const { return ops[peak]; }

  /// The quotients q = e / s that a product needs behind the peak, and so lie
  /// in memory there, while e is read by what can compute it from q and s.
  SmallVector<linalg::GenericOp> getQuotients() const;

  /// Decides which values to compute again behind the peak, at a cost of at
  /// most `maxCost` simple operations an element, the last ones first.
  SmallVector<Value> choose(int64_t maxCost);

private:
  void addReads(Value value, Stored &stored);
  bool isReadInline(const Stored &stored) const;
  void choose(Value value, Stored &stored);
  bool isThere(Value value, int64_t at, int64_t depth = maxDepth) const;
  bool canComputeAt(Value value, int64_t at, int64_t depth) const;
  void readAgain(Value value, int64_t at);

  /// How many values are computed again for another one, each for the next.
  static constexpr int64_t maxDepth = 3;
  bool collectInputs(Operation *op, SetVector<Value> &inputs) const;

  Block &block;
  Materialization roots;
  int64_t extendedEighths, maxCost = 0;
  SmallVector<Operation *> ops;
  DenseMap<Operation *, int64_t> positions;
  int64_t peak = 0;
};
} // namespace

/// Where `value` is read, at first hand or by what is inlined.
void Memory::addReads(Value value, Stored &stored) {
  // Each once, however many ways lead there.
  SetVector<Value> reached;
  reached.insert(value);
  for (size_t next = 0; next != reached.size(); ++next)
    for (Operation *user : reached[next].getUsers()) {
      Operation *at = getAncestor(block, user);
      if (roots.isInlined(at))
        reached.insert(at->result_begin(), at->result_end());
      else
        stored.reads.push_back(positions.lookup(at));
    }
}

Memory::Memory(Block &block, TargetCosts costs)
    : block(block), roots(block, costs),
      extendedEighths(costs.extendedEighths) {
  for (Operation &op : block) {
    positions[&op] = ops.size();
    ops.push_back(&op);
  }
  SmallVector<LiveRange> ranges;
  for (Operation *op : ops) {
    if (!roots.contains(op))
      continue;
    for (Value result : op->getResults()) {
      Stored stored{positions[op], {}, getBytes(result)};
      addReads(result, stored);
      if (stored.bytes == 0 || stored.reads.empty())
        continue;
      llvm::sort(stored.reads);
      ranges.push_back({stored.begin, stored.reads.back(), stored.bytes});
      values.insert({result, stored});
    }
  }
  peak = findPeak(ranges).at;
}

/// The stored values that `op` reads through what is inlined; false if that is
/// more than element-wise operations and views.
bool Memory::collectInputs(Operation *op, SetVector<Value> &inputs) const {
  DenseSet<Operation *> visited;
  auto collect = [&](auto &self, Operation *reader) -> bool {
    if (!visited.insert(reader).second)
      return true;
    SetVector<Value> operands;
    reader->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (operand.getParentBlock() == &block)
          operands.insert(operand);
    });
    for (Value operand : operands) {
      if (roots.isLeaf(operand)) {
        inputs.insert(operand);
        continue;
      }
      Operation *producer = operand.getDefiningOp();
      if (isa<linalg::GenericOp>(producer) && !isPointwise(producer))
        return false;
      if (!self(self, producer))
        return false;
    }
    return true;
  };
  return collect(collect, op);
}

/// True if nothing that reads the value of `stored` behind the peak needs it in
/// memory, as products do.
bool Memory::isReadInline(const Stored &stored) const {
  return llvm::all_of(stored.reads, [&](int64_t at) {
    auto generic = dyn_cast<linalg::GenericOp>(ops[at]);
    return at <= peak ||
           (generic && !linalg::isaContractionOpInterface(generic));
  });
}

/// True if `op` does nothing but divide its first input by the second, element
/// by element.
static bool isQuotient(linalg::GenericOp op) {
  if (!isPointwise(op) || op.getNumDpsInputs() != 2 ||
      op->getNumResults() != 1 ||
      !llvm::hasSingleElement(op.getBody()->without_terminator()))
    return false;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  auto quotient = op.getBody()
                      ->getTerminator()
                      ->getOperand(0)
                      .getDefiningOp<arith::DivFOp>();
  return quotient && maps[0] == maps[2] &&
         quotient.getLhs() == op.getBody()->getArgument(0) &&
         quotient.getRhs() == op.getBody()->getArgument(1) &&
         op->getOperand(0).getType() == op->getResult(0).getType();
}

/// The operation that `generic` ends in, if it is one of type `Op`.
template <typename Op>
static Op getLastOp(linalg::GenericOp generic) {
  Value result = generic.getBody()->getTerminator()->getOperand(0);
  return result.getDefiningOp<Op>();
}

/// The operations of `block` into whose results a maximum over a dimension has
/// gone, element by element.
static DenseSet<Operation *> getMaxima(Block &block) {
  DenseSet<Operation *> maxima;
  auto isMaximum = [&](Value value) {
    return maxima.contains(value.getDefiningOp());
  };
  for (Operation &op : block) {
    bool hasMaximum = false;
    if (auto generic = dyn_cast<linalg::GenericOp>(op))
      hasMaximum = isPointwise(generic)
                       ? llvm::any_of(generic.getDpsInputs(), isMaximum)
                       : isa_and_nonnull<arith::MaximumFOp, arith::MaxNumFOp>(
                             getCombiner(generic, 0));
    else if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op))
      hasMaximum = isMaximum(op.getOperand(0));
    if (hasMaximum)
      maxima.insert(&op);
  }
  return maxima;
}

/// True if `op`, a quotient e / s, is softmax's: e is the exponential of a
/// difference to a maximum and s the sum of e. Then s is at least one and
/// finite, or else all is NaN, and e is (e / s) * s. By another number it is
/// not: 0 / 0 * 0 is NaN.
static bool isSoftmax(linalg::GenericOp op,
                      const DenseSet<Operation *> &maxima) {
  Value dividend = op->getOperand(0), divisor = op->getOperand(1);
  auto power = dividend.getDefiningOp<linalg::GenericOp>();
  if (!power || !isPointwise(power) || !getLastOp<math::ExpOp>(power) ||
      !maxima.contains(power))
    return false;
  while (Operation *view = divisor.getDefiningOp()) {
    if (!isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(view))
      break;
    divisor = view->getOperand(0);
  }
  auto sum = divisor.getDefiningOp<linalg::GenericOp>();
  return sum && sum.getNumReductionLoops() != 0 &&
         isa_and_nonnull<arith::AddFOp>(getCombiner(sum, 0)) &&
         sum.getDpsInputs().front() == dividend;
}

SmallVector<linalg::GenericOp> Memory::getQuotients() const {
  SmallVector<linalg::GenericOp> quotients;
  DenseSet<Operation *> maxima = getMaxima(block);
  for (const auto &[value, stored] : values) {
    auto op = value.getDefiningOp<linalg::GenericOp>();
    if (!op || !isQuotient(op) || !isSoftmax(op, maxima) ||
        stored.begin >= peak || stored.reads.back() <= peak ||
        isReadInline(stored))
      continue;
    auto dividend = values.find(op->getOperand(0));
    if (dividend != values.end() && dividend->second.reads.back() > peak &&
        isReadInline(dividend->second))
      quotients.push_back(op);
  }
  return quotients;
}

/// True if `value` can be computed again at `at`, behind the peak.
bool Memory::canComputeAt(Value value, int64_t at, int64_t depth) const {
  Operation *op = value.getDefiningOp();
  SetVector<Value> inputs;
  return depth != 0 && isPointwise(op) && op->getNumResults() == 1 &&
         roots.getCost(op) <= maxCost && collectInputs(op, inputs) &&
         llvm::all_of(inputs, [&](Value input) {
           return isThere(input, at, depth - 1);
         });
}

/// True if `value` is in memory at `at`, behind the peak, or can be computed
/// again there: earlier than it would be otherwise, or, if operations cost less
/// than traffic, for this alone.
bool Memory::isThere(Value value, int64_t at, int64_t depth) const {
  auto found = values.find(value);
  if (found == values.end())
    return true;
  const Stored &stored = found->second;
  if (stored.again)
    return *stored.again <= at || canComputeAt(value, at, depth);
  if (stored.reads.back() > peak)
    return true;
  return extendedEighths != 0 && canComputeAt(value, at, depth);
}

/// Has `value` read at `at`: it is computed again there, or kept until then.
void Memory::readAgain(Value value, int64_t at) {
  auto found = values.find(value);
  if (found == values.end())
    return;
  Stored &stored = found->second;
  bool isLate = stored.again || stored.reads.back() > peak;
  if (stored.again ? *stored.again > at : !isLate && isThere(value, at)) {
    stored.again = at;
    SetVector<Value> inputs;
    collectInputs(value.getDefiningOp(), inputs);
    for (Value input : inputs)
      readAgain(input, at);
  } else if (!stored.again) {
    // What is needed earlier than it would be there again is kept.
    SmallVector<int64_t> &reads = stored.reads;
    auto *next = llvm::upper_bound(reads, peak);
    stored.isKept |= next == reads.end() || *next > at;
    reads.insert(llvm::upper_bound(reads, at), at);
  }
}

/// Has `value` computed again behind the peak, where that frees memory.
void Memory::choose(Value value, Stored &stored) {
  Operation *op = value.getDefiningOp();
  auto *late = llvm::upper_bound(stored.reads, peak);
  SetVector<Value> inputs;
  // What the block returns is its caller's memory.
  bool isReturned = ops[stored.reads.back()]->hasTrait<OpTrait::IsTerminator>();
  if (stored.isKept || stored.begin >= peak || late == stored.reads.end() ||
      isReturned || !isPointwise(op) || op->getNumResults() != 1 ||
      roots.getCost(op) > maxCost || !collectInputs(op, inputs))
    return;
  // What it takes must be there anyway, but for what is smaller by enough.
  int64_t at = *late, extended = 0;
  for (Value input : inputs)
    if (!isThere(input, at))
      extended += values.find(input)->second.bytes;
  if (8 * extended > extendedEighths * stored.bytes)
    return;
  stored.reads.erase(late, stored.reads.end());
  stored.again = at;
  for (Value input : inputs)
    readAgain(input, at);
}

SmallVector<Value> Memory::choose(int64_t maxCost) {
  this->maxCost = maxCost;
  // First what needs no memory of its own when it is computed again.
  for (bool isInline : {true, false})
    for (auto &[value, stored] : llvm::reverse(values))
      if (!stored.again && isReadInline(stored) == isInline)
        choose(value, stored);
  SmallVector<Value> chosen;
  for (auto &[value, stored] : values)
    if (stored.again)
      chosen.push_back(value);
  // Users first: copies of them use copies of what they are computed from.
  llvm::sort(chosen, [](Value a, Value b) {
    return b.getDefiningOp()->isBeforeInBlock(a.getDefiningOp());
  });
  return chosen;
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
    return !early.contains(getAncestor(block, user));
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
    Operation *at = getAncestor(block, user);
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
      Memory memory(block, costs);
      if (memory.values.empty())
        return;
      Copies(block, memory.getRoots(), memory.getPeak()).copyInlined();
      sinkInlined(block, memory.getRoots());
      sinkLargeProducts(block);
    }
    {
      Memory memory(block, costs);
      Copies copies(block, memory.getRoots(), memory.getPeak());
      for (linalg::GenericOp quotient : memory.getQuotients())
        if (decide("bsr-recompute", quotient))
          copies.multiply(quotient);
    }
    Memory memory(block, costs);
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
      bytesRecomputed += getBytes(value);
      PassRemark::passed("bsr-recompute", "Recomputed", copy)
          .add("Operation", copy->getName())
          .add("Bytes", getBytes(value));
    }
  }
};
} // namespace

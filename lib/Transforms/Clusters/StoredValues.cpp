// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What of a step lies in memory, when, and what of it to compute again.

#include "StoredValues.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/LiveRanges.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::bsr;

/// Where `value` is read, at first hand or by what is inlined.
void StoredValues::addReads(Value value, Stored &stored) {
  // Each once, however many ways lead there.
  SetVector<Value> reached;
  reached.insert(value);
  for (size_t next = 0; next != reached.size(); ++next)
    for (Operation *user : reached[next].getUsers()) {
      Operation *at = block.findAncestorOpInBlock(*user);
      if (roots.isInlined(at))
        reached.insert(at->result_begin(), at->result_end());
      else
        stored.reads.push_back(positions.lookup(at));
    }
}

StoredValues::StoredValues(Block &block, TargetCosts costs)
    : block(block), roots(block, costs), extendedEighths(costs.extendedEighths),
      launchBytes(costs.launchBytes) {
  for (Operation &op : block) {
    positions[&op] = ops.size();
    ops.push_back(&op);
  }
  SmallVector<LiveRange> ranges;
  for (Operation *op : ops) {
    if (!roots.contains(op))
      continue;
    for (Value result : op->getResults()) {
      Stored stored{positions[op], {}, getTensorBytes(result)};
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
bool StoredValues::collectInputs(Operation *op,
                                 SetVector<Value> &inputs) const {
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
bool StoredValues::isReadInline(const Stored &stored) const {
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

SmallVector<linalg::GenericOp> StoredValues::getQuotients() const {
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
bool StoredValues::canComputeAt(Value value, int64_t at, int64_t depth) const {
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
bool StoredValues::isThere(Value value, int64_t at, int64_t depth) const {
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
void StoredValues::readAgain(Value value, int64_t at) {
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
void StoredValues::choose(Value value, Stored &stored) {
  Operation *op = value.getDefiningOp();
  auto *late = llvm::upper_bound(stored.reads, peak);
  SetVector<Value> inputs;
  // What the block returns is its caller's memory.
  bool isReturned = ops[stored.reads.back()]->hasTrait<OpTrait::IsTerminator>();
  if (stored.isKept || stored.begin >= peak || late == stored.reads.end() ||
      isReturned || !isPointwise(op) || op->getNumResults() != 1 ||
      roots.getCost(op) > maxCost || !collectInputs(op, inputs))
    return;
  if (stored.bytes < launchBytes && !isReadInline(stored))
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

SmallVector<Value> StoredValues::choose(int64_t maxCost) {
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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Indices as sums whose digits are the iterations of a parallel loop. Not a
// presburger::IntegerRelation: what matters here, that lines of a pattern have
// blocks of their own and blocks slots of their own, is no affine constraint.

#include "bsr/Analysis/Iterations.h"
#include "bsr/Analysis/Bounds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <functional>
#include <numeric>

using namespace mlir;
using namespace mlir::bsr;

Sum Sum::plus(const Sum &other, int64_t factor) const {
  Sum sum = *this;
  sum.isKnown &= other.isKnown;
  bool isTooLarge = false;
  auto add = [&](int64_t &to, int64_t number) {
    int64_t product;
    isTooLarge |= llvm::MulOverflow(number, factor, product) ||
                  llvm::AddOverflow(to, product, to);
  };
  for (auto [atom, coefficient] : other.coefficients) {
    int64_t &to = sum.coefficients[atom];
    add(to, coefficient);
    if (to == 0)
      sum.coefficients.erase(atom);
  }
  add(sum.low, factor < 0 ? other.high : other.low);
  add(sum.high, factor < 0 ? other.low : other.high);
  return isTooLarge ? Sum() : sum;
}

Iterations::Iterations(scf::ForallOp loop, const PatternArrays &arrays)
    : body(loop.getRegion()), arrays(arrays) {
  for (auto [variable, first, end] :
       llvm::zip_equal(loop.getInductionVars(), loop.getMixedLowerBound(),
                       loop.getMixedUpperBound())) {
    std::optional<int64_t> low = getConstantIntValue(first);
    std::optional<int64_t> high = getConstantIntValue(end);
    variables[variable] =
        low && high ? std::optional(*high - *low) : std::nullopt;
  }
}

Iterations::Iterations(gpu::LaunchOp launch, const PatternArrays &arrays)
    : body(launch.getBody()), arrays(arrays) {
  auto getAll = [](gpu::KernelDim3 dims) {
    return SmallVector<Value>{dims.x, dims.y, dims.z};
  };
  SmallVector<Value> blocks = getAll(launch.getGridSizeOperandValues());
  SmallVector<Value> size = getAll(launch.getBlockSizeOperandValues());
  for (auto [block, count] :
       llvm::zip_equal(getAll(launch.getBlockIds()), blocks))
    variables[block] = getConstantIntValue(count);
  for (auto [thread, count] :
       llvm::zip_equal(getAll(launch.getThreadIds()), size))
    if (std::optional<int64_t> extent = getConstantIntValue(count))
      threads[thread] = *extent;
  for (auto [argument, value] :
       llvm::zip_equal(getAll(launch.getGridSize()), blocks))
    sizes[argument] = value;
  for (auto [argument, value] :
       llvm::zip_equal(getAll(launch.getBlockSize()), size))
    sizes[argument] = value;
}

Sum Iterations::getAtom(Atom atom) {
  auto *known = llvm::find(atoms, atom);
  unsigned number = known - atoms.begin();
  if (known == atoms.end())
    atoms.push_back(std::move(atom));
  return {true, {{number, 1}}, 0, 0};
}

/// The array and the index that `bound` is loaded from.
static memref::LoadOp getLoad(Value bound) {
  if (auto cast = bound.getDefiningOp<arith::IndexCastOp>())
    bound = cast.getIn();
  return bound.getDefiningOp<memref::LoadOp>();
}

/// What `low` is, or of the larger of two numbers one that is known.
Sum Iterations::getLeast(Value low) {
  auto most = low.getDefiningOp<arith::MaxUIOp>();
  if (!most)
    return get(low);
  Sum least = getLeast(most.getLhs());
  return least.isKnown ? least : getLeast(most.getRhs());
}

/// How far `high` is above `low`, at the most.
std::optional<int64_t> Iterations::getLength(const Sum &low, Value high) {
  if (auto least = high.getDefiningOp<arith::MinUIOp>()) {
    std::optional<int64_t> length = getLength(low, least.getLhs());
    return length ? length : getLength(low, least.getRhs());
  }
  Sum length = get(high).plus(low, -1);
  return length.isExactly(length.low) ? std::optional(length.low)
                                      : std::nullopt;
}

/// True if `value` is the same in all iterations.
bool Iterations::isInvariant(Value value) {
  if (isa<MemRefType>(value.getType()))
    return arrays.pointers.contains(value);
  if (isOutside(value))
    return true;
  if (auto known = invariant.find(value); known != invariant.end())
    return known->second;
  Operation *op = value.getDefiningOp();
  bool result = op && op->getNumRegions() == 0 &&
                llvm::all_of(op->getOperands(), [&](Value operand) {
                  return isInvariant(operand);
                });
  return invariant[value] = result;
}

/// All operands of `op` and of the operations inside.
static SmallVector<Value> getAllOperands(Operation *op) {
  SmallVector<Value> operands;
  op->walk([&](Operation *inner) {
    llvm::append_range(operands, inner->getOperands());
  });
  return operands;
}

/// The sum `i` if `low` and `high` are f(i) and f(i + 1), computed by the same
/// operations from the pointers of a pattern: parts of a partition.
std::optional<Sum> Iterations::findStep(Value low, Value high) {
  std::optional<Sum> step;
  DenseMap<Value, Value> same;
  std::function<LogicalResult(Value, Value)> match = [&](Value a, Value b) {
    if (same.lookup(a) == b)
      return success();
    if (a == b)
      return success(isInvariant(a));
    Sum from = get(a);
    if (!from.coefficients.empty() && get(b).plus(from, -1).isExactly(1)) {
      bool isOther = step && !(*step == from);
      step = from;
      return failure(isOther);
    }
    auto x = dyn_cast<OpResult>(a), y = dyn_cast<OpResult>(b);
    if (!x || !y || x.getResultNumber() != y.getResultNumber() ||
        !OperationEquivalence::isEquivalentTo(
            x.getOwner(), y.getOwner(), match,
            [&](Value a, Value b) { same[a] = b; },
            OperationEquivalence::IgnoreLocations))
      return failure();
    // Equivalence takes one operand of both for granted.
    return success(llvm::all_of(llvm::zip_equal(getAllOperands(x.getOwner()),
                                                getAllOperands(y.getOwner())),
                                [&](auto operands) {
                                  auto [left, right] = operands;
                                  return left != right || isInvariant(left);
                                }));
  };
  return succeeded(match(low, high)) ? step : std::nullopt;
}

/// The induction variable of a loop inside: over the blocks of a line, a number
/// of steps from a known bound, or over a part of a partition.
Sum Iterations::getVariable(scf::ForOp inner) {
  Value variable = inner.getInductionVar();
  memref::LoadOp first = getLoad(inner.getLowerBound());
  memref::LoadOp last = getLoad(inner.getUpperBound());
  if (first && last && first.getMemRef() == last.getMemRef() &&
      arrays.pointers.contains(first.getMemRef())) {
    Sum line = get(first.getIndices().front());
    Sum next = get(last.getIndices().front());
    if (next.plus(line, -1).isExactly(1))
      return getAtom(
          {Atom::Position, variable, std::nullopt, first.getMemRef(), line});
    return {};
  }
  Value lower = inner.getLowerBound(), upper = inner.getUpperBound();
  Sum low = getLeast(lower);
  if (std::optional<int64_t> length = getLength(low, upper)) {
    int64_t step = getConstantIntValue(inner.getStep()).value_or(1);
    int64_t most = std::max<int64_t>(*length - 1, 0) / step * step;
    return low.plus(getAtom({Atom::Inner, variable, most + 1, Value(), Sum()}));
  }
  if (std::optional<Sum> part = findStep(lower, upper))
    return getAtom({Atom::Position, variable, std::nullopt, lower, *part});
  return {};
}

/// The smaller operand of `op`, if that is a position in a line of a pattern:
/// one of its positions plus something, and no more than the last.
Sum Iterations::getPosition(arith::MinUIOp op) {
  Sum sum = get(op.getLhs());
  auto last = op.getRhs().getDefiningOp<arith::SubIOp>();
  if (!last || getConstantIntValue(last.getRhs()) != 1 || sum.low < 0 ||
      sum.coefficients.size() != 1 || sum.coefficients.begin()->second != 1)
    return {};
  Atom atom = atoms[sum.coefficients.begin()->first];
  memref::LoadOp end = getLoad(last.getLhs());
  if (atom.kind != Atom::Position || !end || end.getMemRef() != atom.array ||
      !get(end.getIndices().front()).plus(atom.of, -1).isExactly(1))
    return {};
  return getAtom(
      {Atom::Position, op.getResult(), std::nullopt, atom.array, atom.of});
}

/// The least and the most that `sum` can be; nothing if there is no most.
static std::optional<std::pair<int64_t, int64_t>>
getRange(const Sum &sum, ArrayRef<Atom> atoms) {
  auto [least, most] = std::pair(sum.low, sum.high);
  for (auto [atom, coefficient] : sum.coefficients) {
    if (!atoms[atom].extent)
      return std::nullopt;
    int64_t last = coefficient * (*atoms[atom].extent - 1);
    (last < 0 ? least : most) += last;
  }
  return std::pair(least, most);
}

/// The quotient or the rest of `number` by `divisor`.
Sum Iterations::getDigit(Atom::Kind kind, const Sum &number, Value divisor) {
  std::optional<int64_t> size = getConstant(divisor);
  if (!size || *size <= 0 || !number.isKnown || number.low != number.high)
    return {};
  // A multiple of the divisor plus what is below it has both as they are.
  Sum quotient = Sum::constant(llvm::divideFloorSigned(number.low, *size));
  Sum rest = Sum::constant(llvm::mod(number.low, *size));
  // What divides everything divides out: quotients stay, rests are multiples.
  int64_t unit = *size;
  for (auto [atom, coefficient] : number.coefficients) {
    unit = std::gcd(unit, coefficient);
    if (coefficient % *size == 0)
      quotient.coefficients[atom] = coefficient / *size;
    else
      rest.coefficients[atom] = coefficient;
  }
  auto range = getRange(rest, atoms);
  if (range && range->first >= 0 && range->second < *size)
    return kind == Atom::Quotient ? quotient : rest;
  Sum of = Sum::constant(llvm::divideFloorSigned(number.low, unit));
  for (auto [atom, coefficient] : number.coefficients)
    of.coefficients[atom] = coefficient / unit;
  int64_t count = *size / unit;
  std::optional<int64_t> extent;
  if (kind == Atom::Rest)
    extent = count;
  else if (auto all = getRange(of, atoms))
    extent = all->second / count + 1;
  Sum digit = getAtom({kind, Value(), extent, Value(), of, count});
  return kind == Atom::Quotient
             ? digit
             : Sum::constant(llvm::mod(number.low, unit)).plus(digit, unit);
}

/// The atom that stands for `digit` of number `number` of an access.
unsigned Iterations::getDigitOf(size_t number, unsigned digit) {
  Atom atom = atoms[digit];
  atom.of = Sum::constant(number);
  return getAtom(atom).coefficients.begin()->first;
}

/// `sum` without what differs within an iteration: variables of inner loops
/// become their ranges, positions and slots those of any block of the line, and
/// `digits` those of any number.
Sum Iterations::forgetInner(const Sum &sum,
                            ArrayRef<std::pair<unsigned, unsigned>> digits) {
  Sum result{sum.isKnown, {}, sum.low, sum.high};
  for (auto [number, coefficient] : sum.coefficients) {
    Atom atom = atoms[number];
    const auto *pair = llvm::find_if(digits, [number = number](auto pair) {
      return pair.first == number || pair.second == number;
    });
    if (atom.kind == Atom::Inner || (atom.isDigit() && pair == digits.end())) {
      if (!atom.extent)
        return {};
      int64_t range = coefficient * (*atom.extent - 1);
      result.low += std::min<int64_t>(range, 0);
      result.high += std::max<int64_t>(range, 0);
      continue;
    }
    Sum any = Sum::constant(0);
    if (atom.kind == Atom::Iteration)
      any.coefficients[number] = 1;
    else if (atom.isDigit())
      any.coefficients[getDigitOf(pair - digits.begin(), number)] = 1;
    else
      any = getAtom({atom.kind, Value(), std::nullopt, atom.array,
                     forgetInner(atom.of, digits)});
    // Two positions of one line need not be the same.
    if (result.coefficients.count(any.coefficients.begin()->first))
      return {};
    result = result.plus(any, coefficient);
  }
  return result;
}

/// True if `op` runs only where `position`, its index, which is a number from
/// the first position of a line on, is below that of the next line: where a
/// branch compares them. `start` stands for the first position.
bool Iterations::isInLine(memref::LoadOp op, const Sum &position,
                          unsigned start) {
  Sum offset = position;
  offset.coefficients.erase(start);
  auto range = getRange(offset, atoms);
  if (!range || range->first < 0)
    return false;
  Value index = op.getIndices().front();
  if (auto cast = index.getDefiningOp<arith::IndexCastOp>())
    index = cast.getIn();
  Operation *inner = op;
  for (auto branch = op->getParentOfType<scf::IfOp>(); branch;
       branch = branch->getParentOfType<scf::IfOp>()) {
    auto compared = branch.getCondition().getDefiningOp<arith::CmpIOp>();
    if (!compared ||
        !branch.getThenRegion().isAncestor(inner->getParentRegion()) ||
        (compared.getPredicate() != arith::CmpIPredicate::slt &&
         compared.getPredicate() != arith::CmpIPredicate::ult) ||
        compared.getLhs() != index)
      continue;
    memref::LoadOp end = getLoad(compared.getRhs());
    const Atom &first = atoms[start];
    Sum line = first.of;
    if (end && end.getMemRef() == first.array &&
        get(end.getIndices().front()).plus(line, -1).isExactly(1))
      return true;
  }
  return false;
}

/// What `op` loads, if it is the slot of a block: slots differ where positions
/// do.
Sum Iterations::getSlot(memref::LoadOp op) {
  Sum position = get(op.getIndices().front());
  Sum slot = getAtom(
      {Atom::Slot, op.getResult(), std::nullopt, op.getMemRef(), position});
  for (auto [atom, coefficient] : position.coefficients) {
    Atom::Kind kind = atoms[atom].kind;
    if (coefficient != 1 || (kind != Atom::Position && kind != Atom::Start) ||
        !arrays.views.contains({atoms[atom].array, op.getMemRef()}))
      continue;
    if (kind == Atom::Start)
      return isInLine(op, position, atom) ? slot : Sum();
    bool isAll = position.coefficients.size() == 1 && position.low == 0 &&
                 position.high == 0;
    return isAll ? slot : Sum();
  }
  return {};
}

std::optional<int64_t> Iterations::getConstant(Value value) {
  Sum sum = get(value);
  return sum.isExactly(sum.low) ? std::optional(sum.low) : std::nullopt;
}

Sum Iterations::get(Value value) {
  if (auto known = sums.find(value); known != sums.end())
    return known->second;
  Sum sum = compute(value);
  return sums[value] = std::move(sum);
}

Sum Iterations::compute(Value value) {
  if (std::optional<int64_t> constant = getConstantIntValue(value))
    return Sum::constant(*constant);
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (auto found = variables.find(value); found != variables.end())
      return getAtom({Atom::Iteration, value, found->second, Value(), Sum()});
    if (auto found = threads.find(value); found != threads.end())
      return getAtom({Atom::Inner, value, found->second, Value(), Sum()});
    if (Value size = sizes.lookup(value))
      return get(size);
    auto inner = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    if (inner && value == inner.getInductionVar())
      return getVariable(inner);
    return {};
  }
  return llvm::TypeSwitch<Operation *, Sum>(value.getDefiningOp())
      .Case([&](arith::IndexCastOp op) { return get(op.getIn()); })
      .Case([&](arith::AddIOp op) {
        return get(op.getLhs()).plus(get(op.getRhs()));
      })
      .Case([&](arith::SubIOp op) {
        return get(op.getLhs()).plus(get(op.getRhs()), -1);
      })
      .Case([&](arith::MulIOp op) {
        std::optional<int64_t> factor = getConstant(op.getRhs());
        return factor ? Sum::constant(0).plus(get(op.getLhs()), *factor)
                      : Sum();
      })
      .Case([&](arith::DivUIOp op) {
        return getDigit(Atom::Quotient, get(op.getLhs()), op.getRhs());
      })
      .Case([&](arith::RemUIOp op) {
        return getDigit(Atom::Rest, get(op.getLhs()), op.getRhs());
      })
      .Case([&](arith::MinUIOp op) { return getPosition(op); })
      .Case([&](memref::LoadOp op) {
        if (op.getIndices().size() != 1)
          return Sum();
        if (!arrays.pointers.contains(op.getMemRef()))
          return getSlot(op);
        Sum line = get(op.getIndices().front());
        return line.isKnown ? getAtom({Atom::Start, Value(), std::nullopt,
                                       op.getMemRef(), line})
                            : Sum();
      })
      .Default([](Operation *) { return Sum(); });
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How large indices get. Not ValueBoundsConstraintSet: in MLIR 22 it knows no
// arith.minui, with which most work items end.

#include "bsr/Analysis/Bounds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// The largest numbers that values can be.
class Largest {
public:
  std::optional<int64_t> get(Value value) {
    if (auto found = known.find(value); found != known.end())
      return found->second;
    std::optional<int64_t> largest = compute(value);
    return known[value] = largest;
  }

private:
  std::optional<int64_t> compute(Value value);

  DenseMap<Value, std::optional<int64_t>> known;
};
} // namespace

std::optional<int64_t> Largest::compute(Value value) {
  if (std::optional<int64_t> constant = getConstantIntValue(value))
    return constant;
  auto getBelow = [](std::optional<int64_t> bound) {
    return bound ? std::optional(*bound - 1) : std::nullopt;
  };
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Operation *parent = argument.getOwner()->getParentOp();
    unsigned number = argument.getArgNumber();
    if (auto loop = dyn_cast<scf::ForallOp>(parent))
      return getBelow(getConstantIntValue(loop.getMixedUpperBound()[number]));
    auto loop = dyn_cast<scf::ForOp>(parent);
    return loop && value == loop.getInductionVar()
               ? getBelow(get(loop.getUpperBound()))
               : std::nullopt;
  }
  Operation *op = value.getDefiningOp();
  if (!isa<arith::AddIOp, arith::MulIOp, arith::MinUIOp>(op))
    return std::nullopt;
  std::optional<int64_t> left = get(op->getOperand(0));
  std::optional<int64_t> right = get(op->getOperand(1));
  if (isa<arith::MinUIOp>(op) && left.has_value() != right.has_value())
    return left ? left : right;
  if (!left || !right)
    return std::nullopt;
  using Result = std::optional<int64_t>;
  int64_t result;
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case([&](arith::AddIOp) {
        return llvm::AddOverflow(*left, *right, result) ? Result() : result;
      })
      .Case([&](arith::MulIOp) {
        return llvm::MulOverflow(*left, *right, result) ? Result() : result;
      })
      .Case([&](arith::MinUIOp) { return std::min(*left, *right); });
}

std::optional<int64_t> bsr::getLargest(Value value) {
  return Largest().get(value);
}

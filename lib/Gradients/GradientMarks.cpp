// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients that the program itself says are some.

#include "bsr/Gradients/GradientMarks.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Gradients/OffPattern.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::bsr;

/// Replaces the operation around `mark` by one that copies its gradient.
static GradientMark take(GradientOp mark) {
  auto op = cast<linalg::GenericOp>(mark->getParentOp());
  auto find = [&](Value inner) -> Value {
    auto arg = dyn_cast<BlockArgument>(inner);
    return arg && arg.getOwner() == op.getBody()
               ? op.getMatchingOpOperand(arg)->get()
               : inner;
  };
  GradientMark taken{{}, find(mark.getGradient()), find(mark.getAt())};
  OpBuilder b(op);
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps = {op.getIndexingMapsArray().back()};
  auto arg = dyn_cast<BlockArgument>(mark.getGradient());
  bool isRead = arg && arg.getOwner() == op.getBody();
  if (isRead) {
    inputs.push_back(taken.gradient);
    maps.insert(maps.begin(),
                op.getMatchingIndexingMap(op.getMatchingOpOperand(arg)));
  }
  auto copy = linalg::GenericOp::create(
      b, op.getLoc(), op.getResultTypes(), inputs, op.getOutputs(), maps,
      op.getIteratorTypesArray(),
      [&](OpBuilder &b, Location loc, ValueRange in) {
        linalg::YieldOp::create(b, loc,
                                isRead ? in.front() : mark.getGradient());
      });
  taken.output = copy.getResult(0);
  op.getResult(0).replaceAllUsesWith(taken.output);
  op.erase();
  return taken;
}

SmallVector<GradientMark> bsr::takeGradientMarks(func::FuncOp func) {
  SmallVector<GradientOp> found;
  func.walk([&](GradientOp mark) { found.push_back(mark); });
  SmallVector<GradientMark> marks;
  for (GradientOp mark : found)
    marks.push_back(take(mark));
  return marks;
}

void bsr::dropGradientMarks(ArrayRef<GradientMark> marks) {
  for (GradientMark mark : marks) {
    // What it copies now: `mark.gradient` may be a copy that is dropped.
    auto copy = mark.output.getDefiningOp<linalg::GenericOp>();
    auto inputs = copy.getDpsInputs();
    if (inputs.size() != 1 || inputs[0].getType() != mark.output.getType() ||
        !llvm::all_of(copy.getIndexingMapsArray(),
                      [](AffineMap map) { return map.isIdentity(); }))
      continue; // It broadcasts.
    mark.output.replaceAllUsesWith(inputs[0]);
    copy.erase();
  }
}

namespace {
/// The entry-wise functions of a weight, its moments and its gradients, in the
/// order of the program: the entries that they have, and what they are where
/// the weight is zero.
class Functions {
public:
  Functions(const BoundWeight &weight, const StepData &data,
            const Spaces &spaces, ArrayRef<HiddenGradient> gradients);

  /// What is known of a gradient at `value`, if that is a function of the
  /// weight without data in it.
  std::optional<HiddenGradient> find(Value value) const;

private:
  void follow(Value value);
  void findOff(Value value, const StepData &data);

  llvm::MapVector<Value, std::optional<Entries>> values;
  Offs offs;
};
} // namespace

Functions::Functions(const BoundWeight &weight, const StepData &data,
                     const Spaces &spaces, ArrayRef<HiddenGradient> gradients) {
  // Moments are zero where the weight is.
  for (Operation *user : ToDenseOp(weight.dense).getPattern().getUsers())
    if (auto toDense = dyn_cast<ToDenseOp>(user);
        toDense && !toDense.getBackground() && !toDense.getTranspose())
      values[toDense.getDense()] =
          Entries::getWhole(toDense.getDense().getType().getShape());
  for (const HiddenGradient &gradient : gradients)
    values[gradient.value] =
        gradient.isSure ? std::optional(gradient.entries) : std::nullopt;
  for (Value value : llvm::make_first_range(values))
    offs[value] = Off::Zero;
  for (unsigned i = 0; i != values.size(); ++i)
    follow((values.begin() + i)->first);
  SmallVector<Value> ordered(llvm::make_first_range(values));
  spaces.sortInOrder(ordered);
  for (Value value : ordered)
    findOff(value, data);
}

/// Adds the results of what computes with `value`, entry by entry.
void Functions::follow(Value value) {
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    auto op = dyn_cast<linalg::LinalgOp>(user);
    if ((op && op.getNumReductionLoops()) || !isEntryWise(user) ||
        isa<scf::IfOp>(user))
      continue;
    for (OpResult result : user->getResults()) {
      std::optional<Entries> entries = values.lookup(value);
      if (entries)
        entries = followEntries(use, result.getResultNumber(), *entries);
      auto [known, isNew] = values.insert({result, entries});
      // Of what has the weight twice, an entry is not known.
      if (!isNew && !(known->second == entries))
        known->second = std::nullopt;
    }
  }
}

void Functions::findOff(Value value, const StepData &data) {
  Operation *op = value.getDefiningOp();
  if (!op || offs.contains(value))
    return;
  for (Value operand : op->getOperands())
    if (!values.contains(operand) && data.contains(operand) &&
        !isNumber(operand))
      offs[operand] = Off::Data;
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    offs[value] = getBodyOff(linalgOp, cast<OpResult>(value), offs);
    return;
  }
  Off most = Off::Zero;
  for (Value operand : op->getOperands())
    if (values.contains(operand))
      most = std::max(most, getOff(offs, operand));
  offs[value] = most;
}

std::optional<HiddenGradient> Functions::find(Value value) const {
  const auto *known = values.find(value);
  if (known == values.end() || getOff(offs, value) == Off::Data)
    return std::nullopt;
  const std::optional<Entries> &entries = known->second;
  return HiddenGradient{value, entries.value_or(Entries()),
                        entries && getOff(offs, value) == Off::Zero};
}

SmallVector<HiddenGradient> bsr::findMarked(ArrayRef<GradientMark> marks,
                                            const BoundWeight &weight,
                                            const StepData &data,
                                            const Spaces &spaces) {
  SmallVector<HiddenGradient> found;
  if (marks.empty())
    return found;
  // A step may make weights of gradients.
  for (size_t known = 0;; known = found.size()) {
    Functions functions(weight, data, spaces, found);
    found.clear();
    for (const GradientMark &mark : marks)
      if (std::optional<HiddenGradient> gradient = functions.find(mark.at)) {
        gradient->value = mark.output;
        found.push_back(*gradient);
      }
    if (found.size() == known)
      return found;
  }
}

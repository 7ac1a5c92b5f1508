// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the gradients of block-sparse weights in a step.

#include "bsr/Gradients/GradientFinder.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Gradients/OffPattern.h"
#include "bsr/Gradients/Provenance.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::bsr;

/// True if `gradient`, of which it is not known which entries of its weight it
/// has, is that of another weight as a whole.
static bool isAnothers(const HiddenGradient &gradient,
                       ArrayRef<SmallVector<HiddenGradient>> candidates) {
  auto type = cast<RankedTensorType>(gradient.value.getType());
  return gradient.entries.sizes.empty() &&
         llvm::any_of(candidates, [&](ArrayRef<HiddenGradient> found) {
           return llvm::any_of(found, [&](const HiddenGradient &other) {
             return other.isSure && other.value == gradient.value &&
                    ArrayRef(other.entries.sizes) == type.getShape();
           });
         });
}

GradientFinder::GradientFinder(
    func::FuncOp func, ArrayRef<BoundWeight> weights,
    ArrayRef<GradientMark> marks,
    function_ref<void(const BoundWeight &, Operation *, StringRef)> report)
    : func(func), weights(weights), report(report), spaces(func, weights),
      data(func), hiddenGradients(func, spaces), owners(func, spaces) {
  SmallVector<SmallVector<HiddenGradient>> candidates;
  for (auto [number, weight] : llvm::enumerate(weights)) {
    Forward forward(weight, data, spaces);
    marked.push_back(findMarked(marks, weight, data, spaces));
    if (!marked.back().empty()) {
      candidates.emplace_back();
      forwards.push_back(std::move(forward));
      continue;
    }
    Space &space = spaces[number];
    // Without a next value, the same may be the gradient of what is trained.
    bool isPlain = weight.samples.empty() ||
                   llvm::any_of(space.sources, [&](Value source) {
                     Operation *op = source.getDefiningOp();
                     return op && forward.readsFactor(op, 2);
                   });
    SmallVector<HiddenGradient> found =
        hiddenGradients.find(space, forward, isPlain);
    // What the step multiplies instead of a weight has gradients, too.
    constexpr unsigned mostRounds = 4;
    size_t known = 0;
    for (unsigned i = 0; i != mostRounds && known != found.size(); ++i) {
      known = found.size();
      forward = Forward(weight, data, spaces, found);
      found = hiddenGradients.find(space, forward, isPlain);
    }
    candidates.push_back(std::move(found));
    forwards.push_back(std::move(forward));
  }
  for (auto [number, weight] : llvm::enumerate(weights)) {
    hidden.emplace_back();
    for (HiddenGradient &gradient : candidates[number]) {
      if (!gradient.isSure) {
        if (!isAnothers(gradient, candidates))
          report(weight, gradient.value.getDefiningOp(), "may be it");
        continue;
      }
      hidden.back().push_back(gradient.value);
      spaces[number].entries[gradient.value].assign({gradient.entries});
    }
    for (const HiddenGradient &gradient : marked[number]) {
      if (!spaces[number].entries.contains(gradient.value))
        hidden.back().push_back(gradient.value);
      if (gradient.isSure)
        spaces[number].entries[gradient.value].assign({gradient.entries});
    }
    isAdded.push_back(
        !hiddenGradients.findMixtures(weight, forwards[number]).empty());
    opens.push_back(getOpen(number, spaces));
    activations.push_back(
        getActivations(number, spaces, data, owners, isAdded.back()));
  }
}

/// What `value`, which has `entries`, is off the pattern by what its operands
/// are; says whether one of these is data there.
static Off getEntryOff(Value value, const std::optional<Entries> &entries,
                       Offs &offs, bool &wasData) {
  Operation *op = value.getDefiningOp();
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    wasData = llvm::any_of(op->getOperands(), [&](Value operand) {
      return getOff(offs, operand) == Off::Data;
    });
    return getBodyOff(linalgOp, cast<OpResult>(value), offs);
  }
  Off most = Off::Zero;
  auto visit = [&](Value operand) {
    most = std::max(most, getOff(offs, operand));
  };
  if (entries)
    visitOperands(
        op, cast<OpResult>(value).getResultNumber(), *entries,
        [&](OpOperand &operand, const Entries &) { visit(operand.get()); });
  else
    llvm::for_each(op->getOperands(), visit);
  return most;
}

/// What `op` only adds up, as gradients of examples, or null.
static Value getSummed(Operation *op) {
  auto sum = dyn_cast<linalg::LinalgOp>(op);
  return sum && sum.getNumReductionLoops() && sum.getNumDpsInputs() == 1 &&
                 llvm::all_of(sum.getBlock()->without_terminator(),
                              llvm::IsaPred<arith::AddFOp, arith::ExtFOp>)
             ? sum.getDpsInputs()[0]
             : Value();
}

/// The values of the weight's space, and the functions of its entries and of
/// its gradients beside it, in the order of the program.
SmallVector<Value> GradientFinder::getFunctions(unsigned number) const {
  llvm::SetVector<Value> values;
  for (Value value : llvm::make_first_range(spaces[number].entries))
    values.insert(value);
  for (Value value : llvm::make_first_range(forwards[number].values))
    values.insert(value);
  SmallVector<Value> ordered = values.takeVector();
  spaces.sortInOrder(ordered);
  return ordered;
}

/// Finds sums of `gradients` and of the derivative of a penalty that is not
/// zero where the weight is, if something outside of the space sees them.
/// Reports what the weight's space combines with data, entry by entry, if
/// something outside of the space sees it: there the weight is no factor of
/// products, its gradient is an element-wise function of data, and nothing says
/// where that ends and the update begins. With all `gradients` masked, an entry
/// off the pattern is zero, a constant, or made of data.
SmallVector<Value> GradientFinder::findPenalties(unsigned number,
                                                 ArrayRef<Value> gradients) {
  Space &space = spaces[number];
  Offs offs;
  Provenance provenance(ToDenseOp(weights[number].dense).getDense(), gradients,
                        data, offs);
  SmallVector<Value> penalties;
  bool isReported = false;
  auto reportOnce = [&](Operation *op, StringRef what) {
    if (!isReported)
      report(weights[number], op, what);
    isReported = true;
  };
  for (Value value : getFunctions(number)) {
    Operation *op = value.getDefiningOp();
    auto *inside = space.entries.find(value);
    bool isInside = inside != space.entries.end();
    if (llvm::is_contained(gradients, value) ||
        isa_and_nonnull<ToDenseOp>(op)) {
      offs[value] = Off::Zero;
    } else if (isNumber(value) || matchPattern(value, m_Constant())) {
      continue;
    } else if (!op) {
      auto arg = cast<BlockArgument>(value);
      if (arg.getParentRegion() == &func.getBody() &&
          !attrs::result.ofArg(func, arg.getArgNumber()))
        offs[value] = Off::Data;
    } else if (isGather(op)) {
      offs[value] = Off::Data;
    } else if (Value input = getSummed(op)) {
      offs[value] = getOff(offs, input);
      provenance.add(op);
    } else if (isEntryWise(op)) {
      std::optional<Entries> entries =
          isInside ? inside->second.front()
                   : forwards[number].values.lookup(value);
      bool wasData = false;
      offs[value] = getEntryOff(value, entries, offs, wasData);
      provenance.add(op);
      bool isPenalty =
          provenance.get(value) == Origin::Sums && offs[value] == Off::Constant;
      if (!isInside) {
        if (!isPenalty || hiddenGradients.isOnlySummed(value, space))
          continue;
        // Of a gradient within the step.
        if (!entries) {
          reportOnce(op, "may be it");
          continue;
        }
        hidden[number].push_back(value);
        space.entries[value].assign({*entries});
      } else if (!opens[number].contains(value)) {
        continue;
      }
      if (isPenalty) {
        penalties.push_back(value);
        offs[value] = Off::Zero;
      } else if (wasData && offs[value] == Off::Data) {
        reportOnce(op, "computes it of data, entry by entry");
      } else if (gradients.empty() &&
                 provenance.get(value) == Origin::OfWeight &&
                 offs[value] == Off::Constant) {
        reportOnce(op, "is not zero where the weight is");
      }
    }
  }
  return penalties;
}

/// True if hidden gradient `value` has entries of another weight where it has
/// some of this one.
bool GradientFinder::isHiddenElsewhere(unsigned number, Value value) const {
  const Entries &own = spaces[number].entries.find(value)->second.front();
  for (unsigned other : llvm::seq<unsigned>(hidden.size()))
    if (other != number && isHidden(other, value) &&
        spaces[other].entries.find(value)->second.front().overlap(own))
      return true;
  return false;
}

SmallVector<Value> GradientFinder::getGradients(unsigned number) {
  const Space &space = spaces[number];
  const BoundWeight &weight = weights[number];
  const Forward &forward = forwards[number];
  if (Operation *op = forward.mixing) {
    report(weight, op,
           "brings its entries together before they are multiplied");
    return {};
  }
  for (Operation *op :
       hiddenGradients.findLookUps(space, forward, hidden[number]))
    report(weight, op, "may be it");
  for (Operation *op : hiddenGradients.findCombined(weight, space, forward))
    report(weight, op, "may be it");
  if (weight.samples.empty() && hidden[number].empty())
    for (Operation *op : hiddenGradients.findCandidates(weight, forward))
      report(weight, op, "may be it");

  // What may be a gradient, in the order in which it is computed.
  SmallVector<Value> sources;
  for (Value value : hidden[number]) {
    if (isHiddenElsewhere(number, value))
      report(weight, value.getDefiningOp(),
             "may be the gradient of something else as well");
    else
      sources.push_back(value);
  }
  llvm::append_range(sources, space.sources);
  spaces.sortInOrder(sources);
  SmallVector<Operation *> producers;
  for (Value source : sources)
    if (Operation *op = source.getDefiningOp())
      producers.push_back(op);
  Dependents dependents(producers);
  bool anyReads = llvm::any_of(
      producers, [&](Operation *op) { return forward.readsFactor(op, 2); });

  DenseSet<Value> gradients;
  SmallVector<Value> ordered;
  for (Value source : sources) {
    Operation *op = source.getDefiningOp();
    if (!op) {
      report(weight, source.getParentRegion()->getParentOp(),
             "carries entries of its update from step to step of a loop");
      continue;
    }
    // Data that the weight is used with, entry by entry.
    if (isGather(op))
      continue;
    // Of one row or column, products with the weight have its shape: here the
    // way back went through the gradient into the forward pass.
    if (llvm::is_contained(space.shape, 1) &&
        llvm::any_of(op->getOperands(), [&](Value operand) {
          return forward.values.contains(operand);
        })) {
      report(weight, op, "multiplies the weight itself");
      continue;
    }
    // A factor of the update, such as a matrix that scales the weight.
    if (anyReads && !forward.readsFactor(op, 2) && !forward.after.contains(op))
      continue;
    if (producers.size() > 1 && dependents.contains(op)) {
      // What the optimizer computes from gradients alone is its own.
      bool reachesGradient = false;
      if (!data.reaches(op, gradients, reachesGradient) && reachesGradient)
        continue;
    }
    gradients.insert(source);
    ordered.push_back(source);
  }
  for (Operation *op : space.fused) {
    bool reachesGradient = false;
    if (gradients.empty() && data.reaches(op, gradients, reachesGradient))
      report(weight, op, "computes it and uses it in one");
  }

  if (!weight.samples.empty())
    if (Operation *op = hiddenGradients.findUnknown(weight, space, forward))
      report(weight, op, "may be it");
  llvm::append_range(ordered, findPenalties(number, ordered));
  return ordered;
}

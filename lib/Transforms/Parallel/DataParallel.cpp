// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes the mean of gradients over the processes of a run.

#include "Accumulation.h"
#include "Differing.h"
#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/EntryMaps.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Dialect/Rows.h"
#include "bsr/Dialect/Shards.h"
#include "bsr/Transforms/Parallel/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRDATAPARALLEL
#include "bsr/Transforms/Parallel/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// True if `op` has the product or sum of its body in floating point for each
/// of its results: the mean of which over processes is that of a larger batch.
static bool isSum(linalg::LinalgOp op) {
  auto *yield = op.getBlock()->getTerminator();
  for (auto [output, yielded] :
       llvm::zip_equal(op.getRegionOutputArgs(), yield->getOperands())) {
    auto add = yielded.getDefiningOp<arith::AddFOp>();
    if (!add || (add.getLhs() != output && add.getRhs() != output))
      return false;
  }
  return true;
}

/// True for what adds up the tokens of a batch, or is linear in what does.
static bool isGradient(Operation *op) {
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return linalgOp.getNumReductionLoops() && isSum(linalgOp);
  // Batched products add up the features of a token.
  if (auto sddmm = dyn_cast<SDDMMOp>(op))
    return sddmm.getNumBatchDims() == 0;
  if (auto spmm = dyn_cast<SpMMOp>(op))
    return spmm.getNumBatchDims() == 0;
  return isa<SampleOp, ScatterAddOp, ScatterRowsOp>(op);
}

/// Calls `visit` with the operands of `op` that an entry of `result` is made of
/// entry by entry; false if it is made in another way.
static bool visitEntries(OpResult result, function_ref<void(Value)> visit) {
  Operation *op = result.getOwner();
  if (auto toDense = dyn_cast<ToDenseOp>(op)) {
    llvm::for_each(toDense->getOperands().drop_front(), visit);
    return true;
  }
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    visit(branch.thenYield().getOperand(result.getResultNumber()));
    if (branch.elseBlock())
      visit(branch.elseYield().getOperand(result.getResultNumber()));
    return true;
  }
  bool isPlain = isa<BarrierOp>(op) || isEntryWise(op);
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!isPlain || (linalgOp && linalgOp.getNumReductionLoops()))
    return false;
  bool isElementWise = linalgOp || op->hasTrait<OpTrait::Elementwise>();
  for (Value operand : op->getOperands())
    // What is broadcast is a factor, not a gradient.
    if (!isElementWise || countElements(operand) == countElements(result))
      visit(operand);
  return true;
}

namespace {
/// Finds the gradients of a step, and what differs from process to process once
/// these are reduced.
class Reducer {
public:
  Reducer(func::FuncOp step, func::ReturnOp end, bool isCut)
      : step(step), end(end), isCut(isCut) {
    for (BlockArgument argument : step.getArguments())
      if (!isSame(step, argument.getArgNumber()))
        differing.insert(argument);
  }

  /// Reduces all gradients; the number of them.
  FailureOr<unsigned> run();

private:
  void visit(Block &block);
  void visit(Operation *op);
  LogicalResult reduceGradients();
  /// Makes of gradients what is only another order of their entries, or a
  /// multiple of which a sum is taken, and of two of one parameter their sum.
  void addGradients();
  /// True if `op` multiplies or divides entries of `gradient` by numbers that
  /// all processes have alike, for a sum to read.
  bool isFactorOfSummand(Operation *op, Value gradient) const;
  /// Makes of gradients that are added up over several runs what they are added
  /// up to, if all are, and only runs that update use it.
  void accumulateGradients();
  void reduce(OpBuilder &b, Value value);

  bool differs(Value value) const { return differing.contains(value); }
  bool readsAnyOf(Operation *op, const DenseSet<Value> &values) const {
    bool found = false;
    visitReads(op, [&](Value read) { found |= values.contains(read); });
    return found;
  }

  func::FuncOp step;
  func::ReturnOp end;
  bool isCut;
  /// What is not the same on all processes, as long as `gradients` are reduced.
  DenseSet<Value> differing;
  /// What depends on a gradient.
  DenseSet<Value> after;
  /// The next value that is made of it entry by entry, of what may be a
  /// gradient.
  DenseMap<Value, unsigned> candidates;
  llvm::SetVector<Value> gradients;
  LogicalResult status = success();
};
} // namespace

/// Adds what `op` computes to `differing` and `after`.
void Reducer::visit(Operation *op) {
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    for (Region &region : op->getRegions())
      for (Block &block : region)
        visit(block);
    auto join = [&](DenseSet<Value> &set) {
      for (OpResult result : op->getResults()) {
        unsigned number = result.getResultNumber();
        if (set.contains(branch.getCondition()) ||
            set.contains(branch.thenYield().getOperand(number)) ||
            set.contains(branch.elseYield().getOperand(number)))
          set.insert(result);
      }
    };
    join(differing);
    join(after);
    return;
  }
  auto mark = [&](DenseSet<Value> &set) {
    if (!readsAnyOf(op, set))
      return;
    op->walk([&](Operation *inner) {
      set.insert_range(inner->getResults());
      for (Region &region : inner->getRegions())
        for (Block &block : region)
          set.insert_range(block.getArguments());
    });
  };
  bool isCandidate = llvm::any_of(
      op->getResults(), [&](Value v) { return candidates.contains(v); });
  if (!isCandidate || !readsAnyOf(op, differing)) {
    mark(differing);
    mark(after);
    return;
  }
  unsigned number = 0;
  for (Value result : op->getResults())
    if (auto found = candidates.find(result); found != candidates.end())
      number = found->second;
  auto refuse = [&](const Twine &what) {
    BlockArgument carrier = getCarriers(step)[number];
    emitError(op->getLoc(), "expected the next value of ")
        << attrs::name.ofArg(step, carrier.getArgNumber())
        << " to depend on the batch by sums over it, which are gradients, "
           "but got "
        << what;
    status = failure();
  };
  if (!isGradient(op))
    return refuse("'" + op->getName().getStringRef() + "'");
  if (op->getParentOp() != step)
    return refuse("one inside of '" +
                  op->getParentOp()->getName().getStringRef() + "'");
  if (readsAnyOf(op, after))
    return refuse("one that depends on another and the batch");
  gradients.insert_range(op->getResults());
  after.insert_range(op->getResults());
}

void Reducer::visit(Block &block) {
  for (Operation &op : block) {
    if (failed(status))
      return;
    visit(&op);
  }
}

/// Reduces `value` for all that reads it.
void Reducer::reduce(OpBuilder &b, Value value) {
  b.setInsertionPointAfterValue(value);
  auto mean = AllReduceOp::create(b, value.getLoc(), value.getType(), value);
  value.replaceAllUsesExcept(mean.getResult(), mean);
}

LogicalResult Reducer::reduceGradients() {
  SmallVector<BlockArgument> carriers = getCarriers(step);
  // What differs with nothing reduced; there are no candidates yet.
  DenseSet<Value> arguments = differing;
  visit(step.getBody().front());
  DenseSet<Value> seen;
  for (OpOperand &next : end->getOpOperands()) {
    if (!carriers[next.getOperandNumber()])
      continue;
    SmallVector<Value> worklist = {next.get()};
    while (!worklist.empty()) {
      Value value = worklist.pop_back_val();
      auto result = dyn_cast<OpResult>(value);
      if (!result || !differs(value) || !seen.insert(value).second)
        continue;
      if (!visitEntries(result, [&](Value read) { worklist.push_back(read); }))
        candidates.try_emplace(value, next.getOperandNumber());
    }
  }
  differing = std::move(arguments);
  after.clear();
  visit(step.getBody().front());
  if (failed(status))
    return failure();
  for (OpOperand &next : end->getOpOperands())
    if (BlockArgument carrier = carriers[next.getOperandNumber()];
        carrier && differs(next.get()))
      return emitError(next.get().getLoc(), "expected the next value of ")
             << attrs::name.ofArg(step, carrier.getArgNumber())
             << " to depend on the batch by sums over it, which are gradients, "
                "but got another way";
  return success();
}

bool Reducer::isFactorOfSummand(Operation *op, Value gradient) const {
  if (op->getNumResults() != 1 || !op->getResult(0).hasOneUse() ||
      !getSummands(*op->user_begin()))
    return false;
  bool isSame = true;
  visitReads(op, [&](Value read) {
    isSame &= read == gradient || (!differs(read) && !after.contains(read));
  });
  if (!isSame)
    return false;
  Operation *factor = op;
  Value scaled = gradient;
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    OpOperand &use = *gradient.use_begin();
    scaled = linalgOp.getMatchingBlockArgument(&use);
    factor =
        linalgOp.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
    if (linalgOp.getNumReductionLoops() || !linalgOp.isDpsInput(&use) ||
        !linalgOp.getMatchingIndexingMap(&use).isIdentity() || !factor ||
        !scaled.hasOneUse())
      return false;
  }
  if (isa<arith::DivFOp>(factor))
    return factor->getOperand(0) == scaled;
  return isa<arith::MulFOp>(factor) &&
         llvm::is_contained(factor->getOperands(), scaled);
}

void Reducer::addGradients() {
  SmallVector<Value> worklist = gradients.takeVector();
  gradients.insert_range(worklist);
  while (!worklist.empty()) {
    Value gradient = worklist.pop_back_val();
    if (!gradients.contains(gradient) || !gradient.hasOneUse())
      continue;
    Operation *sum = *gradient.user_begin();
    if (isRearranged(sum) || isFactorOfSummand(sum, gradient)) {
      gradients.remove(gradient);
      gradients.insert(sum->getResult(0));
      worklist.push_back(sum->getResult(0));
      continue;
    }
    auto summands = getSummands(sum);
    if (!summands)
      continue;
    auto [first, second] = *summands;
    if (first == second || !gradients.contains(first) ||
        !gradients.contains(second) || !first.hasOneUse() ||
        !second.hasOneUse())
      continue;
    gradients.remove(first);
    gradients.remove(second);
    gradients.insert(sum->getResult(0));
    worklist.push_back(sum->getResult(0));
  }
}

void Reducer::accumulateGradients() {
  RunWithoutUpdate run(step);
  if (!run.exists() || gradients.empty())
    return;
  llvm::SetVector<Value> sums;
  DenseSet<Value> sources; // of what differs from process to process
  DenseSet<BlockArgument> states;
  auto refuse = [&](Location loc, const Twine &what) {
    PassRemark::missed("bsr-data-parallel", "ReducedEachRun", {loc, step},
                       DiagnosticSeverity::Remark)
            .add("Reason", what)
        << "expected gradients that are added up in the state of the step and "
           "used where apply is not 0, but got "
        << what << ": each run takes means over processes";
  };
  for (Value gradient : gradients) {
    Operation *sum = *gradient.user_begin();
    auto summands = gradient.hasOneUse() ? getSummands(sum) : std::nullopt;
    if (!summands)
      return refuse(gradient.getLoc(), "another use of one");
    auto state = dyn_cast<BlockArgument>(
        summands->first == gradient ? summands->second : summands->first);
    if (!state || state.getOwner() != &step.front() || !state.hasOneUse() ||
        !attrs::result.ofArg(step, state.getArgNumber()))
      return refuse(gradient.getLoc(), "another sum");
    sums.insert(sum->getResult(0));
    states.insert(state);
    sources.insert(sum->getResult(0));
  }
  for (BlockArgument argument : step.getArguments())
    if (!isSame(step, argument.getArgNumber()) || states.contains(argument))
      sources.insert(argument);
  SmallVector<BlockArgument> carriers = getCarriers(step);
  for (OpOperand &next : end->getOpOperands())
    if (BlockArgument carrier = carriers[next.getOperandNumber()];
        carrier && !states.contains(carrier) &&
        run.dependsOn(next.get(), sources))
      return refuse(
          next.get().getLoc(),
          "the next value of '" +
              attrs::name.ofArg(step, carrier.getArgNumber()).getValue() +
              "' which depends on the batch in all runs");
  gradients = std::move(sums);
  attrs::accumulates.set(step, UnitAttr::get(step.getContext()));
}

FailureOr<unsigned> Reducer::run() {
  if (failed(reduceGradients()))
    return failure();
  // What several stages make of one parameter, they add up when they have
  // means.
  if (!isCut) {
    addGradients();
    accumulateGradients();
  }
  OpBuilder b(step.getContext());
  unsigned reductions = 0;
  auto isFloat = [](Value value) {
    return isa<FloatType>(getElementTypeOrSelf(value.getType()));
  };
  for (Value gradient : gradients) {
    assert(isFloat(gradient) && "gradients are sums of floats");
    reduce(b, gradient);
    ++reductions;
  }
  SmallVector<BlockArgument> carriers = getCarriers(step);
  for (OpOperand &result : end->getOpOperands()) {
    unsigned number = result.getOperandNumber();
    Value value = result.get();
    if (carriers[number] || !differs(value))
      continue;
    if (!isFloat(value) || (!isNumber(value) && !isScores(step, number))) {
      PassRemark::missed("bsr-data-parallel", "ResultOfEachProcess",
                         {value.getLoc(), step}, DiagnosticSeverity::Remark)
              .add("Result", attrs::name.ofResult(step, number))
          << "expected result " << attrs::name.ofResult(step, number)
          << " to be one floating-point number, but got " << value.getType()
          << ": it stays that of each process";
      continue;
    }
    b.setInsertionPoint(end);
    result.set(AllReduceOp::create(b, value.getLoc(), value.getType(), value)
                   .getResult());
    ++reductions;
  }
  attrs::communicates.set(step, b.getUnitAttr());
  return reductions;
}

namespace {
struct DataParallel : bsr::impl::BSRDataParallelBase<DataParallel> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    if (!getTarget(step).getLaunchChip().empty()) {
      step.emitError("expected a target that runs on processors for means over "
                     "processes, but got ")
          << Attribute(getTarget(step));
      return signalPassFailure();
    }
    FailureOr<func::ReturnOp> end = getReturn(step);
    if (failed(end))
      return signalPassFailure();
    FailureOr<unsigned> reductions = Reducer(step, *end, cut).run();
    if (failed(reductions))
      return signalPassFailure();
    numReductions += *reductions;
  }
};
} // namespace

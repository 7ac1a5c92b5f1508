// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Goes through several micro-batches in a run of a step, in the order of a
// schedule.

#include "Differing.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/Transfers.h"
#include "bsr/Partition/StagePlan.h"
#include "bsr/Transforms/Parallel/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRMICROBATCHES
#include "bsr/Transforms/Parallel/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// A tensor of `inputs`, entry by entry, by the operations of `body`, of
/// elements of type `element`.
static Value
mapEntries(OpBuilder &b, Location loc, ValueRange inputs, Type element,
           function_ref<Value(OpBuilder &, Location, ValueRange)> body) {
  auto type = cast<RankedTensorType>(inputs.front().getType());
  Value empty =
      tensor::EmptyOp::create(b, loc, type.getShape(), element).getResult();
  SmallVector<AffineMap> maps(inputs.size() + 1,
                              b.getMultiDimIdentityMap(type.getRank()));
  SmallVector<utils::IteratorType> loops(type.getRank(),
                                         utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             b, loc, empty.getType(), inputs, empty, maps, loops,
             [&](OpBuilder &inner, Location at, ValueRange entries) {
               linalg::YieldOp::create(inner, at,
                                       body(inner, at, entries.drop_back()));
             })
      .getResult(0);
}

/// `entry` as a number of type `type`, which is its own or a longer one.
static Value widen(OpBuilder &b, Location loc, Value entry, Type type) {
  return entry.getType() == type
             ? entry
             : arith::ExtFOp::create(b, loc, type, entry).getResult();
}

namespace {
/// Repeats what one step computes for a micro-batch.
class Repeater {
public:
  Repeater(func::FuncOp step, func::ReturnOp end, int64_t count,
           Schedule schedule, bool hasReplicas)
      : step(step), end(end), count(count), schedule(schedule),
        hasReplicas(hasReplicas), copies(count) {
    if (DenseI64ArrayAttr stage = attrs::stages.get(step))
      own = stage[0], numStages = stage[1];
  }

  LogicalResult run();

private:
  LogicalResult classify();
  LogicalResult findForward();
  LogicalResult copyArguments();
  void makeTasks();
  void addUp(OpBuilder &b, int64_t microBatch, ArrayRef<AllReduceOp> of);
  Value getMean(OpBuilder &b, Location loc, Value sum, Type element);
  void reduce();

  func::FuncOp step;
  func::ReturnOp end;
  int64_t count;
  Schedule schedule;
  bool hasReplicas;
  unsigned own = 0, numStages = 1;
  DenseSet<Value> differing;
  /// What is computed for each micro-batch, and once behind all of them.
  SmallVector<Operation *> repeated, last;
  /// Of what is repeated, what goes forward; all else goes back.
  DenseSet<Operation *> forward;
  SmallVector<AllReduceOp> reductions; ///< of what differs
  /// What scores of blocks are made of: those of the last micro-batch count.
  DenseSet<Value> scores;
  SmallVector<IRMapping> copies; ///< of each micro-batch
  /// By what a reduction is of.
  DenseMap<Value, Value> sums;
};
} // namespace

/// Tells what is computed for each micro-batch from what waits for all.
LogicalResult Repeater::classify() {
  differing = findDiffering(step);
  DenseSet<Value> late;
  for (Operation &op : step.front().without_terminator()) {
    bool differs = false, isLate = false;
    visitAllReads(&op, [&](Value read) {
      differs |= differing.contains(read);
      isLate |= late.contains(read);
    });
    auto receive = dyn_cast<ReceiveOp>(op);
    if (auto reduction = dyn_cast<AllReduceOp>(op)) {
      if (!reduction.getResult())
        return op.emitError("expected means of tensors, but got one of ")
               << reduction.getData().getType();
      if (differs)
        reductions.push_back(reduction);
      differs = false;
      isLate = true;
    }
    differs |= receive && !receive.getOnce();
    isLate |= receive && receive.getOnce();
    // Both sides of a transfer have it behind all micro-batches.
    isLate |= isa<SendOp>(op) && !differs;
    if (differs && isLate)
      return op.emitError("expected what a micro-batch computes not to depend "
                          "on means over all of them, but got '")
             << op.getName() << "' that does";
    if (differs)
      repeated.push_back(&op);
    if (isLate) {
      last.push_back(&op);
      late.insert_range(op.getResults());
    }
  }
  for (OpOperand &operand : end->getOpOperands())
    if (auto mean = operand.get().getDefiningOp<AllReduceOp>();
        mean && isScores(step, operand.getOperandNumber()))
      scores.insert(mean.getData());
  for (OpOperand &operand : end->getOpOperands())
    if (differing.contains(operand.get()))
      return emitError(operand.get().getLoc(), "expected results of a step of ")
             << count
             << " micro-batches to be carried or numbers, of which means are "
                "taken, but got "
             << attrs::name.ofResult(step, operand.getOperandNumber())
             << " of type " << operand.get().getType();
  return success();
}

/// Finds what later stages need, or the loss follows from.
LogicalResult Repeater::findForward() {
  SmallVector<Operation *> worklist;
  for (Operation *op : repeated) {
    auto send = dyn_cast<SendOp>(op);
    auto receive = dyn_cast<ReceiveOp>(op);
    if ((send && send.getTo() > own) || (receive && receive.getFrom() < own))
      worklist.push_back(op);
  }
  if (own + 1 == numStages) {
    SmallVector<BlockArgument> carriers = getCarriers(step);
    for (OpOperand &operand : end->getOpOperands())
      if (auto mean = operand.get().getDefiningOp<AllReduceOp>();
          mean && !carriers[operand.getOperandNumber()] &&
          !scores.contains(mean.getData()))
        if (Operation *made = mean.getData().getDefiningOp())
          worklist.push_back(made);
  }
  DenseSet<Operation *> isRepeated(repeated.begin(), repeated.end());
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val();
    if (!isRepeated.contains(op) || !forward.insert(op).second)
      continue;
    if (auto receive = dyn_cast<ReceiveOp>(op);
        receive && receive.getFrom() > own)
      return op->emitError("expected what stage ")
             << own
             << " computes for later stages to follow from earlier ones, but "
                "got what stage "
             << receive.getFrom() << " sends back";
    visitAllReads(op, [&](Value read) {
      Operation *made = read.getDefiningOp();
      if (made && made->getBlock() == &step.front())
        worklist.push_back(made);
    });
  }
  return success();
}

/// Gives all micro-batches but the first arguments of their own.
LogicalResult Repeater::copyArguments() {
  llvm::StringSet<> names;
  unsigned numArguments = step.getNumArguments();
  for (unsigned i = 0; i < numArguments; ++i)
    if (StringAttr name = attrs::name.ofArg(step, i))
      names.insert(name.getValue());
  Builder b(step.getContext());
  for (int64_t copy = 1; copy < count; ++copy)
    for (unsigned i = 0; i < numArguments; ++i) {
      BlockArgument argument = step.getArgument(i);
      if (!differing.contains(argument))
        continue;
      NamedAttrList list(step.getArgAttrDict(i));
      std::string name = ("micro" + Twine(copy) + ".").str();
      if (StringAttr old = attrs::name.get(list.getDictionary(b.getContext())))
        name += old.getValue();
      if (names.contains(name))
        return step.emitError("expected no argument of the name of that of a "
                              "micro-batch, but got \"")
               << name << "\"";
      attrs::name.set(list, b.getStringAttr(name));
      unsigned last = step.getNumArguments();
      if (failed(step.insertArgument(last, argument.getType(),
                                     list.getDictionary(b.getContext()),
                                     argument.getLoc())))
        return failure();
      copies[copy].map(argument, step.getArgument(last));
    }
  return success();
}

/// Adds what micro-batch `microBatch` made of what `of` take means of to what
/// those before it did: 16-bit floats in f32.
void Repeater::addUp(OpBuilder &b, int64_t microBatch,
                     ArrayRef<AllReduceOp> of) {
  for (AllReduceOp reduction : of) {
    Value data = reduction.getData();
    Value copy = copies[microBatch].lookupOrDefault(data);
    Value &sum = sums[data];
    if (!microBatch || scores.contains(data)) {
      sum = copy;
      continue;
    }
    Type element = getElementTypeOrSelf(data.getType());
    Type wide = element.isF64() ? element : Type(b.getF32Type());
    sum = mapEntries(
        b, reduction.getLoc(), {sum, copy}, wide,
        [&](OpBuilder &inner, Location loc, ValueRange entries) -> Value {
          return arith::AddFOp::create(inner, loc,
                                       widen(inner, loc, entries[0], wide),
                                       widen(inner, loc, entries[1], wide));
        });
    // Else all sums would be taken at the end, of what is kept until then.
    attrs::stored.set(sum.getDefiningOp(), b.getUnitAttr());
  }
}

/// Copies what is repeated for each task, and adds up what means are taken of
/// as soon as it is there: what follows in the last task hides the mean.
void Repeater::makeTasks() {
  // What makes it, null for arguments, which are there from the beginning.
  DenseMap<Operation *, SmallVector<AllReduceOp>> means;
  DenseSet<Value> seen;
  for (AllReduceOp reduction : reductions)
    if (seen.insert(reduction.getData()).second)
      means[reduction.getData().getDefiningOp()].push_back(reduction);
  OpBuilder b(end);
  for (StageTask task : getTasks(own, numStages, count, schedule)) {
    IRMapping &mapping = copies[task.microBatch];
    if (task.isForward)
      addUp(b, task.microBatch, means.lookup(nullptr));
    for (Operation *op : repeated) {
      if (forward.contains(op) != task.isForward)
        continue;
      b.clone(*op, mapping);
      addUp(b, task.microBatch, means.lookup(op));
    }
  }
}

/// `sum` over the number of micro-batches, rounded to `element`.
Value Repeater::getMean(OpBuilder &b, Location loc, Value sum, Type element) {
  if (count == 1)
    return sum;
  return mapEntries(
      b, loc, sum, element,
      [&](OpBuilder &inner, Location at, ValueRange entries) -> Value {
        Type wide = entries[0].getType();
        Value number = arith::ConstantOp::create(
            inner, at, inner.getFloatAttr(wide, double(count)));
        Value mean = arith::DivFOp::create(inner, at, entries[0], number);
        return wide == element
                   ? mean
                   : arith::TruncFOp::create(inner, at, element, mean)
                         .getResult();
      });
}

/// Takes means of sums where these are done, and moves what needs them behind
/// all tasks.
void Repeater::reduce() {
  DenseMap<Value, Value> means;
  for (Operation *op : last) {
    auto reduction = dyn_cast<AllReduceOp>(op);
    Value of = reduction ? reduction.getData() : Value();
    Value sum = of ? sums.lookup(of) : Value();
    if (sum) {
      OpBuilder b(end);
      if (Operation *made = sum.getDefiningOp())
        b.setInsertionPointAfter(made);
      Value &mean = means[of];
      if (!mean)
        mean = scores.contains(of)
                   ? sum
                   : getMean(b, op->getLoc(), sum,
                             getElementTypeOrSelf(of.getType()));
      reduction.getDataMutable().assign(mean);
      if (Operation *made = mean.getDefiningOp())
        op->moveAfter(made);
    } else {
      op->moveBefore(end);
    }
    if (reduction && !hasReplicas) {
      reduction.getResult().replaceAllUsesWith(reduction.getData());
      op->erase();
    }
  }
}

LogicalResult Repeater::run() {
  if (failed(classify()) || failed(findForward()) || failed(copyArguments()))
    return failure();
  makeTasks();
  reduce();
  for (Operation *op : llvm::reverse(repeated))
    op->erase();
  Builder b(step.getContext());
  if (count > 1)
    attrs::microBatches.set(step, b.getI64IntegerAttr(count));
  bool isStage = numStages > 1;
  if (isStage && hasReplicas)
    attrs::replicas.set(step, b.getUnitAttr());
  if (!isStage && !hasReplicas)
    attrs::communicates.remove(step);
  return success();
}

namespace {
struct MicroBatches : bsr::impl::BSRMicroBatchesBase<MicroBatches> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    if (count < 1) {
      step.emitError("expected one micro-batch or more, but got ")
          << count.getValue();
      return signalPassFailure();
    }
    Schedule order = Schedule::OneForwardOneBackward;
    if (schedule == "gpipe") {
      order = Schedule::GPipe;
    } else if (schedule != "1f1b") {
      step.emitError("expected schedule gpipe or 1f1b, but got '")
          << schedule.getValue() << "'";
      return signalPassFailure();
    }
    FailureOr<func::ReturnOp> end = getReturn(step);
    if (failed(end) ||
        failed(Repeater(step, *end, count, order, replicas).run()))
      return signalPassFailure();
  }
};
} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Cuts a step into stages of several processes, and keeps one.

#include "Differing.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/Transfers.h"
#include "bsr/Partition/ReadParts.h"
#include "bsr/Partition/StagePlan.h"
#include "bsr/Transforms/Parallel/Passes.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSPLITSTAGES
#include "bsr/Transforms/Parallel/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// Splits one step.
class Splitter {
public:
  Splitter(func::FuncOp step, unsigned stages, unsigned stage)
      : step(step), end(cast<func::ReturnOp>(step.front().getTerminator())),
        numStages(stages), own(stage) {}

  LogicalResult run();

private:
  using Stages = llvm::SmallBitVector;

  LogicalResult findStages();
  Stages getStages(ArrayRef<unsigned> parts) const;
  Stages getAll() const { return Stages(numStages, true); }
  /// The stages of result `number` of the step.
  Stages getResultStages(unsigned number);
  void findNeeds();
  void transfer();
  LogicalResult eraseOthers();
  LogicalResult verifyPatterns(const llvm::SmallDenseSet<int64_t> &own);
  void keepStaticPatterns(const llvm::BitVector &erased);
  LogicalResult eraseSignature();

  func::FuncOp step;
  func::ReturnOp end;
  unsigned numStages, own;
  StepPlaces places;
  SmallVector<unsigned> stageOf; ///< of each part
  /// The stages that run an operation, and those that read a value.
  DenseMap<Operation *, Stages> runs;
  DenseMap<Value, Stages> reads;
};
} // namespace

LogicalResult Splitter::findStages() {
  FailureOr<StepParts> parts = readParts(step, places);
  if (failed(parts))
    return failure();
  if (parts->parts.size() < numStages)
    return step.emitError("expected at most ")
           << parts->parts.size()
           << " stages, since the step has as many parts that can be cut, but "
              "got "
           << numStages;
  // One machine's operations and bytes a second are as good as another's: only
  // how they compare counts.
  Devices devices;
  devices.flops = 1e11;
  devices.memoryBandwidth = 1e10;
  if (!parts->samples)
    parts->samples = 1;
  SmallVector<unsigned> ends = cutChain(getChain(*parts, devices), numStages);
  for (auto [stage, end] : llvm::enumerate(ends))
    stageOf.resize(end, unsigned(stage));
  return success();
}

Splitter::Stages Splitter::getStages(ArrayRef<unsigned> parts) const {
  Stages stages(numStages);
  for (unsigned part : parts)
    stages.set(stageOf[part]);
  return stages;
}

Splitter::Stages Splitter::getResultStages(unsigned number) {
  BlockArgument owner = isScores(step, number) ? getScored(step, number)
                                               : getCarriers(step)[number];
  auto found = places.arguments.find(owner);
  return found == places.arguments.end() ? getAll() : getStages(found->second);
}

/// Finds, from the end of the step to its beginning, which stages run what.
void Splitter::findNeeds() {
  auto read = [&](Value value, const Stages &stages) {
    auto [it, isNew] = reads.try_emplace(value, stages);
    if (!isNew)
      it->second |= stages;
  };
  for (OpOperand &operand : end->getOpOperands())
    read(operand.get(), getResultStages(operand.getOperandNumber()));
  for (Operation &op : llvm::reverse(step.front().without_terminator())) {
    Stages needed(numStages);
    for (Value result : op.getResults())
      if (auto found = reads.find(result); found != reads.end())
        needed |= found->second;
    if (needed.none())
      continue;
    // What belongs nowhere is computed where it is needed.
    if (auto place = places.operations.find(&op);
        place != places.operations.end())
      needed = getStages(place->second);
    runs[&op] = needed;
    visitAllReads(&op, [&](Value value) { read(value, needed); });
  }
}

/// Sends what other stages read of this one, and receives what it reads of
/// others: all stages in the order of the step.
void Splitter::transfer() {
  // A step that takes no means computes all for its one micro-batch.
  bool hasMeans = !step.front().getOps<AllReduceOp>().empty();
  DenseSet<Value> differing = findDiffering(step);
  for (Operation &op :
       llvm::make_early_inc_range(step.front().without_terminator())) {
    auto place = runs.find(&op);
    if (place == runs.end())
      continue;
    const Stages &stages = place->second;
    unsigned from = stages.find_first();
    OpBuilder b(step.getContext());
    b.setInsertionPointAfter(&op);
    for (Value result : op.getResults()) {
      auto found = reads.find(result);
      if (found == reads.end())
        continue;
      Stages others = found->second;
      others.reset(stages);
      for (unsigned to : others.set_bits()) {
        if (own == from) {
          SendOp::create(b, op.getLoc(), result, to);
        } else if (own == to) {
          auto received = ReceiveOp::create(b, op.getLoc(), result.getType(),
                                            /*buffer=*/Value(), from,
                                            /*once=*/hasMeans &&
                                                !differing.contains(result));
          result.replaceAllUsesWith(received.getResult());
        }
      }
    }
  }
}

/// Erases what this stage does not run, and results that it does not return.
LogicalResult Splitter::eraseOthers() {
  SmallVector<Value> returned;
  for (OpOperand &operand : end->getOpOperands())
    if (getResultStages(operand.getOperandNumber()).test(own))
      returned.push_back(operand.get());
  end->setOperands(returned);
  SmallVector<Operation *> others;
  for (Operation &op : step.front().without_terminator()) {
    auto place = runs.find(&op);
    bool isOwn = place != runs.end() && place->second.test(own);
    if (!isOwn && !isa<SendOp, ReceiveOp>(op))
      others.push_back(&op);
  }
  for (Operation *op : llvm::reverse(others))
    op->erase();
  return eraseSignature();
}

/// Checks that the stage reads no pattern but those of its own values, which
/// change with them.
LogicalResult
Splitter::verifyPatterns(const llvm::SmallDenseSet<int64_t> &own) {
  for (BlockArgument argument : step.getArguments())
    if (isa<PatternType>(argument.getType()) && !argument.use_empty() &&
        !own.contains(argument.getArgNumber()))
      return emitError((*argument.getUsers().begin())->getLoc(),
                       "expected a stage to read patterns of its own weights, "
                       "but got that of ")
             << attrs::name.ofArg(step, argument.getArgNumber()) << " in stage "
             << this->own;
  return success();
}

/// Drops static patterns that no argument has but those that are `erased`.
void Splitter::keepStaticPatterns(const llvm::BitVector &erased) {
  ArrayAttr all = attrs::patterns.get(step);
  if (!all)
    return;
  SmallVector<Attribute> kept;
  DenseMap<int64_t, int64_t> numbers;
  Builder b(step.getContext());
  for (unsigned i = 0; i < step.getNumArguments(); ++i) {
    auto number = attrs::patternNumber.ofArg(step, i);
    if (!number || erased[i])
      continue;
    auto [it, isNew] = numbers.try_emplace(number.getInt(), kept.size());
    if (isNew)
      kept.push_back(all[number.getInt()]);
    NamedAttrList list(step.getArgAttrDict(i));
    attrs::patternNumber.set(list, b.getI64IntegerAttr(it->second));
    step.setArgAttrs(i, list.getDictionary(b.getContext()));
  }
  attrs::patterns.remove(step);
  if (!kept.empty())
    attrs::patterns.set(step, b.getArrayAttr(kept));
}

/// Drops carried arguments of other stages, and patterns that nothing reads.
LogicalResult Splitter::eraseSignature() {
  llvm::BitVector results(step.getNumResults()),
      arguments(step.getNumArguments());
  for (unsigned i = 0; i < step.getNumResults(); ++i)
    results[i] = !getResultStages(i).test(own);
  llvm::SmallDenseSet<int64_t> patterns; // of values that stay
  for (unsigned i = 0; i < step.getNumArguments(); ++i) {
    auto result = attrs::result.ofArg(step, i);
    arguments[i] = result && results[result.getInt()];
    if (auto pattern = attrs::pattern.ofArg(step, i); pattern && !arguments[i])
      patterns.insert(pattern.getInt());
  }
  for (unsigned i = 0; i < step.getNumArguments(); ++i)
    if (isa<PatternType>(step.getArgument(i).getType()))
      arguments[i] = !patterns.contains(i) && step.getArgument(i).use_empty();
  if (failed(verifyPatterns(patterns)))
    return failure();
  for (unsigned i : arguments.set_bits())
    if (!step.getArgument(i).use_empty())
      return emitError((*step.getArgument(i).getUsers().begin())->getLoc(),
                       "expected what reads ")
             << attrs::name.ofArg(step, i)
             << " to be in a stage that has it, but got it in stage " << own
             << ": it reads parameters of several stages";
  keepStaticPatterns(arguments);
  auto isKeptScores = [&](unsigned i) {
    return isScores(step, i) && !results[i];
  };
  if (llvm::none_of(llvm::seq(step.getNumResults()), isKeptScores))
    attrs::scoreNorm.remove(step);
  // The numbers of what stays.
  auto getNumber = [](const llvm::BitVector &erased, int64_t number) {
    int64_t before = 0;
    for (unsigned i : erased.set_bits())
      before += i < number;
    return number - before;
  };
  Builder b(step.getContext());
  for (unsigned i = 0; i < step.getNumArguments(); ++i) {
    if (arguments[i])
      continue;
    NamedAttrList list(step.getArgAttrDict(i));
    if (auto result = attrs::result.ofArg(step, i))
      attrs::result.set(
          list, b.getI64IntegerAttr(getNumber(results, result.getInt())));
    if (auto pattern = attrs::pattern.ofArg(step, i))
      attrs::pattern.set(
          list, b.getI64IntegerAttr(getNumber(arguments, pattern.getInt())));
    step.setArgAttrs(i, list.getDictionary(b.getContext()));
  }
  if (failed(step.eraseResults(results)))
    return failure();
  return step.eraseArguments(arguments);
}

LogicalResult Splitter::run() {
  if (failed(findStages()))
    return failure();
  findNeeds();
  transfer();
  if (failed(eraseOthers()))
    return failure();
  Builder b(step.getContext());
  attrs::communicates.set(step, b.getUnitAttr());
  attrs::stages.set(step, b.getDenseI64ArrayAttr({own, numStages}));
  return success();
}

namespace {
struct SplitStages : bsr::impl::BSRSplitStagesBase<SplitStages> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    if (!getTarget(step).getLaunchChip().empty()) {
      step.emitError("expected a target that runs on processors for stages, "
                     "but got ")
          << Attribute(getTarget(step));
      return signalPassFailure();
    }
    if (stages < 2 || stage >= stages) {
      step.emitError("expected two stages or more and one of them to keep, "
                     "counted from 0, but got stage ")
          << stage.getValue() << " of " << stages.getValue();
      return signalPassFailure();
    }
    if (failed(getReturn(step)) || failed(Splitter(step, stages, stage).run()))
      return signalPassFailure();
  }
};
} // namespace

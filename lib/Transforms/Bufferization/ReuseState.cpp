// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets the kernels that make the next value of an argument write it over the
// old one.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Order.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Bufferization/Passes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRREUSESTATE
#include "bsr/Transforms/Bufferization/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// The next value of an argument, made by a kernel.
struct Update {
  /// The argument whose next value it is.
  BlockArgument argument;
  /// Which result of the launch it is.
  unsigned result;
  /// The reshapes between that result and the step's, last one first.
  SmallVector<Operation *> reshapes;
};
} // namespace

static StringAttr getCarrierName(func::FuncOp step, const Update &update) {
  return attrs::name.ofArg(step, update.argument.getArgNumber());
}

/// Finds the launch behind `value`, the next value of `update.argument`; null
/// if something else makes it.
static LaunchOp findLaunch(Value value, Update &update) {
  while (isa_and_present<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(
      value.getDefiningOp())) {
    update.reshapes.push_back(value.getDefiningOp());
    value = value.getDefiningOp()->getOperand(0);
  }
  auto launch = value.getDefiningOp<LaunchOp>();
  if (launch)
    update.result = cast<OpResult>(value).getResultNumber();
  return launch;
}

/// Adds to `readers` the operations of `launch`'s block that read `value` or a
/// view of it, but for what `launch` reads in place. `isWhole` tells that
/// `value` is the whole buffer: a part can not be read in place.
static void collectReaders(Value value, bool isWhole, LaunchOp launch,
                           SmallPtrSetImpl<Operation *> &readers) {
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(user))
      collectReaders(user->getResult(0), isWhole, launch, readers);
    else if (isa<tensor::ExtractSliceOp>(user))
      collectReaders(user->getResult(0), /*isWhole=*/false, launch, readers);
    else if (user != launch || !isWhole ||
             !llvm::is_contained(launch.getInPlace(), use.getOperandNumber()))
      readers.insert(launch->getBlock()->findAncestorOpInBlock(*user));
  }
}

/// Moves `launch` behind all `readers` of what it overwrites, together with
/// what depends on it. Does nothing and fails if one of them needs the new
/// value, too.
static LogicalResult sink(LaunchOp launch,
                          const SmallPtrSetImpl<Operation *> &readers,
                          Order &order) {
  Operation *last = launch;
  for (Operation *reader : readers)
    if (order.isBefore(last, reader))
      last = reader;

  SetVector<Operation *> moved;
  moved.insert(launch);
  for (Operation *op = launch->getNextNode(); op && op != last->getNextNode();
       op = op->getNextNode()) {
    WalkResult depends = op->walk([&](Operation *nested) {
      return WalkResult(
          failure(llvm::any_of(nested->getOperands(), [&](Value operand) {
            return moved.contains(operand.getDefiningOp());
          })));
    });
    if (!depends.wasInterrupted())
      continue;
    if (!isMemoryEffectFree(op))
      return failure();
    moved.insert(op);
  }
  if (llvm::any_of(moved, [&](Operation *op) { return readers.contains(op); }))
    return failure();
  if (last == launch)
    return success();
  for (Operation *op : moved) {
    order.moveAfter(op, last);
    last = op;
  }
  return success();
}

/// The argument of `update` in the shape of the launch's result.
static Value getInit(OpBuilder &b, const Update &update) {
  Value init = update.argument;
  for (Operation *reshape : update.reshapes) {
    Type type = reshape->getOperand(0).getType();
    Location loc = reshape->getLoc();
    if (auto expand = dyn_cast<tensor::ExpandShapeOp>(reshape))
      init = tensor::CollapseShapeOp::create(b, loc, type, init,
                                             expand.getReassociationIndices());
    else
      init = tensor::ExpandShapeOp::create(
          b, loc, type, init,
          cast<tensor::CollapseShapeOp>(reshape).getReassociationIndices());
  }
  return init;
}

/// Makes `terminator` pass on values of `carried`, arguments of its block, in
/// the buffers in which they came: `next` are its operands for them. One value
/// may be the old one of another: those are copied first.
static void carryInPlace(Operation *terminator,
                         MutableArrayRef<OpOperand> operands,
                         ArrayRef<BlockArgument> carried) {
  OpBuilder b(terminator);
  Location loc = terminator->getLoc();
  SmallVector<std::pair<OpOperand &, BlockArgument>> updates;
  for (auto [next, argument] : llvm::zip_equal(operands, carried))
    if (isa<RankedTensorType>(argument.getType()) && next.get() != argument)
      updates.emplace_back(next, argument);
  for (auto [next, argument] : updates)
    if (llvm::is_contained(carried, next.get()))
      next.set(bufferization::AllocTensorOp::create(
          b, loc, cast<RankedTensorType>(argument.getType()),
          /*dynamicSizes=*/ValueRange(), /*copy=*/next.get()));
  for (auto [next, argument] : updates)
    next.set(bufferization::MaterializeInDestinationOp::create(
                 b, loc, next.get(), argument)
                 .getResult());
}

/// Makes `loop` carry what its condition passes on, beside what it carries, so
/// that both have a buffer from round to round.
static scf::WhileOp carryResults(scf::WhileOp loop) {
  IRRewriter b(loop);
  Location loc = loop.getLoc();
  SmallVector<Value> inits(loop.getInits());
  size_t numCarried = inits.size();
  for (Type type : loop.getResultTypes()) {
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      inits.push_back(tensor::EmptyOp::create(b, loc, tensor, ValueRange()));
    else
      inits.push_back(
          arith::ConstantOp::create(b, loc, type, b.getZeroAttr(type)));
  }
  auto both = scf::WhileOp::create(b, loc, ValueRange(inits).getTypes(), inits,
                                   /*beforeBuilder=*/nullptr,
                                   /*afterBuilder=*/nullptr);
  ValueRange before = both.getBeforeArguments();
  ValueRange after = both.getAfterArguments();
  b.mergeBlocks(loop.getBeforeBody(), both.getBeforeBody(),
                before.take_front(numCarried));
  b.mergeBlocks(loop.getAfterBody(), both.getAfterBody(),
                after.drop_front(numCarried));
  scf::ConditionOp condition = both.getConditionOp();
  SmallVector<Value> passed(before.take_front(numCarried));
  llvm::append_range(passed, condition.getArgs());
  condition.getArgsMutable().assign(passed);
  scf::YieldOp yield = both.getYieldOp();
  yield.getResultsMutable().append(after.drop_front(numCarried));
  b.replaceOp(loop, both.getResults().drop_front(numCarried));
  return both;
}

/// Makes `op`, if it is a loop, leave what it carries to its next round in the
/// buffers in which it got it.
static void carryInPlace(Operation *op) {
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    Operation *yield = loop.getBody()->getTerminator();
    carryInPlace(yield, yield->getOpOperands(), loop.getRegionIterArgs());
  } else if (auto loop = dyn_cast<scf::WhileOp>(op)) {
    if (loop->getOperandTypes() != loop->getResultTypes())
      loop = carryResults(loop);
    scf::ConditionOp condition = loop.getConditionOp();
    carryInPlace(condition, condition.getArgsMutable(),
                 loop.getBeforeArguments());
    scf::YieldOp yield = loop.getYieldOp();
    carryInPlace(yield, yield->getOpOperands(), loop.getAfterArguments());
  }
}

namespace {
struct ReuseState : bsr::impl::BSRReuseStateBase<ReuseState> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    FailureOr<func::ReturnOp> terminator = getReturn(step);
    if (failed(terminator))
      return signalPassFailure();
    step.walk<WalkOrder::PostOrder>([](Operation *op) { carryInPlace(op); });
    llvm::MapVector<LaunchOp, SmallVector<Update>> updates;
    for (auto [argument, value] :
         llvm::zip_equal(getCarriers(step), terminator->getOperands())) {
      Update update = {argument, /*result=*/0, /*reshapes=*/{}};
      if (!argument)
        continue;
      if (LaunchOp launch = findLaunch(value, update))
        updates[launch].push_back(std::move(update));
    }

    Order order(step.front());
    for (auto &[launch, made] : updates) {
      if (!decide("bsr-reuse-state", launch))
        continue;
      SmallPtrSet<Operation *, 8> readers;
      for (const Update &update : made)
        collectReaders(update.argument, /*isWhole=*/true, launch, readers);
      if (failed(sink(launch, readers, order))) {
        for (const Update &update : made)
          PassRemark::missed("bsr-reuse-state", "NotInPlace", launch)
                  .add("Argument", getCarrierName(step, update))
                  .add("Kernel", launch.getKernel())
              << "expected the old value to be read before the kernel that "
                 "makes the next one, but got a reader that needs both";
        continue;
      }
      OpBuilder b(launch);
      for (const Update &update : made) {
        launch.getInitsMutable()[update.result].assign(getInit(b, update));
        PassRemark::passed("bsr-reuse-state", "InPlace", launch)
            .add("Argument", getCarrierName(step, update))
            .add("Kernel", launch.getKernel());
      }
      numReused += made.size();
    }
  }
};
} // namespace

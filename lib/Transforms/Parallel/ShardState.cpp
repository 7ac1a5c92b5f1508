// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives each process of a run a share of the optimizer's state: ZeRO-1.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Dialect/Shards.h"
#include "bsr/Transforms/Parallel/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSHARDSTATE
#include "bsr/Transforms/Parallel/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

static RankedTensorType getTensor(Value value) {
  return dyn_cast<RankedTensorType>(value.getType());
}

/// True if `op` makes each row of its one result of the same rows of its
/// operands, or of all of an operand.
static bool isRowWise(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || op->getNumResults() != 1 || generic.getNumReductionLoops() ||
      generic.hasIndexSemantics() || !isa<func::FuncOp>(op->getParentOp()))
    return false;
  OpOperand *init = generic.getDpsInitOperand(0);
  if (!generic.getMatchingIndexingMap(init).isIdentity())
    return false;
  std::optional<unsigned> dim =
      getShardDim(getTensor(op->getResult(0)).getShape());
  return dim && llvm::all_of(generic.getDpsInputOperands(), [&](OpOperand *in) {
           AffineMap map = generic.getMatchingIndexingMap(in);
           return map.isIdentity() || !map.isFunctionOfDim(*dim);
         });
}

/// True if `op`, which is row-wise, reads `operand` row by row.
static bool readsRows(Operation *op, OpOperand &operand) {
  return cast<linalg::GenericOp>(op)
      .getMatchingIndexingMap(&operand)
      .isIdentity();
}

namespace {
/// Shards the state of one step.
class Sharder {
public:
  Sharder(func::FuncOp step, func::ReturnOp end, int64_t processes)
      : step(step), end(end), processes(processes),
        carriers(getCarriers(step)) {}

  /// The number of arguments that became shards.
  FailureOr<unsigned> run(int64_t minElements);

private:
  /// The operations that make next values of `state`; null if something else
  /// reads it, or if a next value would be needed whole, as `why` says.
  std::optional<SmallVector<Operation *>> findUpdate(BlockArgument state,
                                                     std::string &why) const;
  void findStates(int64_t minElements);
  void absorbOperands();
  RankedTensorType getShardType(Value value) const {
    RankedTensorType type = getTensor(value);
    return type.clone(getShardShape(type.getShape(), processes));
  }
  /// Makes the shard of `value`, if there is none.
  void mapShard(OpBuilder &b, Location loc, Value value);
  void shardUpdate(OpBuilder &b, linalg::GenericOp op);
  void shardGroup(OpBuilder &b, ArrayRef<linalg::GenericOp> group);
  SmallVector<SmallVector<linalg::GenericOp>> getGroups();
  void changeArguments();

  func::FuncOp step;
  func::ReturnOp end;
  int64_t processes;
  SmallVector<BlockArgument> carriers; // of the results
  llvm::SetVector<BlockArgument> states;
  DenseSet<Operation *> updates; // what is to work on shards
  IRMapping shards;              // of what has any
};
} // namespace

std::optional<SmallVector<Operation *>>
Sharder::findUpdate(BlockArgument state, std::string &why) const {
  llvm::SetVector<Operation *> found;
  SmallVector<Value> worklist = {state};
  auto refuse = [&](const Twine &what) {
    why = what.str();
    return std::nullopt;
  };
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      if (user == end) {
        BlockArgument carrier = carriers[use.getOperandNumber()];
        if (!carrier)
          return refuse("a result that is not carried");
        StringAttr role = attrs::role.ofArg(step, carrier.getArgNumber());
        if (!states.contains(carrier) && (!role || role != "param"))
          return refuse(
              "the next value of '" +
              attrs::name.ofArg(step, carrier.getArgNumber()).getValue() +
              "', which stays whole");
        continue;
      }
      if (!isRowWise(user) || !readsRows(user, use))
        return refuse("'" + user->getName().getStringRef() + "'");
      if (found.insert(user))
        worklist.push_back(user->getResult(0));
    }
  }
  return found.takeVector();
}

/// Finds `states` and what reads them, the first of `updates`.
void Sharder::findStates(int64_t minElements) {
  for (BlockArgument argument : step.getArguments()) {
    unsigned number = argument.getArgNumber();
    auto type = getTensor(argument);
    StringAttr role = attrs::role.ofArg(step, number);
    if (!type || !isa<FloatType>(type.getElementType()) || !role ||
        role != "state" || !attrs::result.ofArg(step, number) ||
        type.getNumElements() < minElements || !getShardDim(type.getShape()))
      continue;
    // A row of values is a slot.
    if (attrs::pattern.ofArg(step, number) && type.getDimSize(0) == 1)
      continue;
    states.insert(argument);
  }
  // What one needs whole may take the next value of another.
  bool isStable = false;
  while (!isStable) {
    isStable = true;
    for (BlockArgument state : llvm::to_vector(states)) {
      std::string why;
      if (findUpdate(state, why))
        continue;
      StringAttr name = attrs::name.ofArg(step, state.getArgNumber());
      PassRemark::missed("bsr-shard-state", "StateNotCut",
                         {state.getLoc(), step}, DiagnosticSeverity::Remark)
              .add("State", name)
              .add("Reason", why)
          << "expected state " << name
          << " to be read entry by entry, for its own next value and those of "
             "parameters, but got "
          << why << ": each process keeps all of it";
      states.remove(state);
      isStable = false;
    }
  }
  for (BlockArgument state : states) {
    std::string why;
    updates.insert_range(*findUpdate(state, why));
  }
}

/// Adds to `updates` what only they read, and what makes rows of rows.
void Sharder::absorbOperands() {
  for (Operation &op : llvm::reverse(step.front().without_terminator())) {
    if (updates.contains(&op) || !isRowWise(&op) || op.use_empty())
      continue;
    if (llvm::all_of(op.getUses(), [&](OpOperand &use) {
          return updates.contains(use.getOwner()) &&
                 readsRows(use.getOwner(), use);
        }))
      updates.insert(&op);
  }
}

void Sharder::mapShard(OpBuilder &b, Location loc, Value value) {
  if (shards.contains(value))
    return;
  RankedTensorType type = getShardType(value);
  SplatElementsAttr constant;
  Value shard;
  if (matchPattern(value, m_Constant(&constant)))
    shard = arith::ConstantOp::create(b, loc, constant.resizeSplat(type));
  else
    shard = ShardOp::create(b, loc, type, value, Value()).getResult();
  shards.map(value, shard);
}

/// True if `op` only writes to `operand`.
static bool isUnread(linalg::GenericOp op, OpOperand &operand) {
  return op.isDpsInit(&operand) && !op.payloadUsesValueFromOperand(&operand);
}

/// Makes the shard of what `op` makes of the shards of its operands.
void Sharder::shardUpdate(OpBuilder &b, linalg::GenericOp op) {
  RankedTensorType type = getShardType(op->getResult(0));
  SmallVector<Value> operands;
  for (OpOperand &operand : op->getOpOperands()) {
    if (isUnread(op, operand))
      operands.push_back(tensor::EmptyOp::create(
          b, op.getLoc(), type.getShape(), type.getElementType()));
    else
      operands.push_back(readsRows(op, operand) ? shards.lookup(operand.get())
                                                : operand.get());
  }
  Operation *shard = clone(b, op, {type}, operands);
  shards.map(op->getResult(0), shard->getResult(0));
}

/// Makes at `b`, one behind the other so that they are one kernel, shards of
/// what `group` reads, what it makes, and of parameters what is whole of that.
void Sharder::shardGroup(OpBuilder &b, ArrayRef<linalg::GenericOp> group) {
  for (linalg::GenericOp op : group)
    for (OpOperand &operand : op->getOpOperands())
      if (readsRows(op, operand) && !isUnread(op, operand) &&
          !updates.contains(operand.get().getDefiningOp()))
        mapShard(b, op.getLoc(), operand.get());
  for (linalg::GenericOp op : group)
    shardUpdate(b, op);
  for (linalg::GenericOp op : group)
    for (OpOperand &use :
         llvm::make_early_inc_range(op->getResult(0).getUses())) {
      if (use.getOwner() != end)
        continue;
      BlockArgument carrier = carriers[use.getOperandNumber()];
      Value shard = shards.lookup(op->getResult(0));
      if (!states.contains(carrier))
        shard =
            UnshardOp::create(b, op.getLoc(), carrier.getType(), shard, carrier)
                .getResult();
      use.set(shard);
    }
}

/// What makes next values of the same state and parameters, together, in the
/// order of the step.
SmallVector<SmallVector<linalg::GenericOp>> Sharder::getGroups() {
  llvm::EquivalenceClasses<Operation *> classes;
  for (Operation *op : updates) {
    classes.insert(op);
    for (Operation *user : op->getUsers())
      if (updates.contains(user))
        classes.unionSets(op, user);
  }
  for (BlockArgument state : states)
    for (Operation *user : state.getUsers())
      if (user != end)
        classes.unionSets(
            user, *llvm::find_if(state.getUsers(), [&](Operation *other) {
              return other != end;
            }));
  llvm::MapVector<Operation *, SmallVector<linalg::GenericOp>> groups;
  for (Operation &op : step.front())
    if (updates.contains(&op))
      groups[classes.getLeaderValue(&op)].push_back(
          cast<linalg::GenericOp>(op));
  return llvm::to_vector(llvm::make_second_range(groups));
}

/// Gives states and their next values the types of shards, and the step the
/// attributes that say so.
void Sharder::changeArguments() {
  Builder b(step.getContext());
  NamedAttrList wholeShapes;
  for (BlockArgument state : states) {
    wholeShapes.set(attrs::name.ofArg(step, state.getArgNumber()).getValue(),
                    b.getDenseI64ArrayAttr(getTensor(state).getShape()));
    state.setType(getShardType(state));
  }
  step.setFunctionType(FunctionType::get(step.getContext(),
                                         step.getBody().getArgumentTypes(),
                                         end->getOperandTypes()));
  attrs::sharded.set(step, b.getI64IntegerAttr(processes));
  attrs::wholeShapes.set(step, wholeShapes.getDictionary(step.getContext()));
}

FailureOr<unsigned> Sharder::run(int64_t minElements) {
  findStates(minElements);
  if (states.empty())
    return 0;
  absorbOperands();
  for (BlockArgument state : states)
    shards.map(state, state);
  // Where they were, so that all else becomes the same kernels as without.
  for (const SmallVector<linalg::GenericOp> &group : getGroups()) {
    OpBuilder b(group.back());
    shardGroup(b, group);
  }
  SmallVector<Operation *> old(updates.begin(), updates.end());
  for (Operation *op : old)
    op->dropAllReferences();
  for (Operation *op : old)
    op->erase();
  changeArguments();
  return states.size();
}

namespace {
struct ShardState : bsr::impl::BSRShardStateBase<ShardState> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    if (processes < 2) {
      step.emitError("expected processes to be 2 at least, but got ")
          << processes.getValue();
      return signalPassFailure();
    }
    FailureOr<func::ReturnOp> end = getReturn(step);
    if (failed(end))
      return signalPassFailure();
    FailureOr<unsigned> sharded =
        Sharder(step, *end, processes).run(minElements);
    if (failed(sharded))
      return signalPassFailure();
    numSharded += *sharded;
  }
};
} // namespace

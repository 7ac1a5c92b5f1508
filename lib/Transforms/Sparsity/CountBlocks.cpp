// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts the steps of each block of a weight, and corrects its bias by them.

#include "BiasCorrection.h"
#include "BlockCounts.h"
#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Transforms/Sparsity/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRCOUNTBLOCKS
#include "bsr/Transforms/Sparsity/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// The numbers of the blocks of one weight.
class BlockNumbers {
public:
  BlockNumbers(func::FuncOp step, BiasCorrections &corrections,
               BlockArgument weight)
      : step(step), corrections(corrections), weight(weight) {}

  /// What `number` is for each block, as `element`: a tensor of `[slots, 1,
  /// 1]`.
  Value compute(OpBuilder &b, Location loc, Value number, Type element);

  /// Lets the step carry the counts and the products that were needed.
  void carry();

  unsigned getNumCounts() const { return counts.size(); }

private:
  /// A number, and whether it is that of a block.
  using Entry = llvm::PointerIntPair<Value, 1, bool>;

  Entry find(Value value, bool isOwn);
  void visit(Entry entry, llvm::SetVector<Entry> &inputs,
             llvm::DenseSet<Entry> &seen);
  Value build(OpBuilder &b, Location loc, Entry entry,
              DenseMap<Entry, Value> &known);
  BlockArgument getCounts(BlockArgument state);

  func::FuncOp step;
  BiasCorrections &corrections;
  BlockArgument weight;
  llvm::MapVector<BlockArgument, BlockArgument> counts; // of the states
};
} // namespace

/// The operation or argument that has `value`, or the tensor without dimensions
/// in front of it that is no block's own.
BlockNumbers::Entry BlockNumbers::find(Value value, bool isOwn) {
  if (isOwn)
    return {corrections.getNumber(value), true};
  while (!isa<ShapedType>(value.getType())) {
    Operation *op = value.getDefiningOp();
    if (auto argument = dyn_cast<BlockArgument>(value))
      value = cast<linalg::LinalgOp>(argument.getOwner()->getParentOp())
                  ->getOperand(argument.getArgNumber());
    else if (isa<tensor::ExtractOp>(op))
      value = op->getOperand(0);
    else
      return {value, false};
  }
  if (cast<ShapedType>(value.getType()).getRank() == 0 &&
      !matchPattern(value, m_Constant()))
    return {value, false};
  return {corrections.getNumber(value), false};
}

/// Adds to `inputs` the tensors that `entry` is made of.
void BlockNumbers::visit(Entry entry, llvm::SetVector<Entry> &inputs,
                         llvm::DenseSet<Entry> &seen) {
  Value value = entry.getPointer();
  if (!seen.insert(entry).second || matchPattern(value, m_Constant()))
    return;
  Operation *op = value.getDefiningOp();
  if (!op || (!entry.getInt() && isa<ShapedType>(value.getType()))) {
    inputs.insert(entry);
    return;
  }
  for (OpOperand &operand : op->getOpOperands())
    visit(find(operand.get(), entry.getInt() && corrections.isOwn(operand)),
          inputs, seen);
}

/// Computes `entry` of what is `known`.
Value BlockNumbers::build(OpBuilder &b, Location loc, Entry entry,
                          DenseMap<Entry, Value> &known) {
  if (Value value = known.lookup(entry))
    return value;
  Value value = entry.getPointer();
  Type type = getElementTypeOrSelf(value.getType());
  Attribute constant;
  Value built;
  if (matchPattern(value, m_Constant(&constant))) {
    if (auto elements = dyn_cast<DenseElementsAttr>(constant))
      constant = elements.getSplatValue<Attribute>();
    built = arith::ConstantOp::create(b, loc, cast<TypedAttr>(constant));
  } else {
    Operation *op = value.getDefiningOp();
    IRMapping mapping;
    SmallVector<Value> operands;
    for (OpOperand &operand : op->getOpOperands())
      operands.push_back(build(
          b, loc,
          find(operand.get(), entry.getInt() && corrections.isOwn(operand)),
          known));
    Operation *copy = b.clone(*op);
    copy->setOperands(operands);
    copy->getResult(0).setType(type);
    built = copy->getResult(0);
  }
  known[entry] = built;
  return built;
}

Value BlockNumbers::compute(OpBuilder &b, Location loc, Value number,
                            Type element) {
  Entry entry = find(number, /*isOwn=*/true);
  llvm::SetVector<Entry> inputs;
  llvm::DenseSet<Entry> seen;
  visit(entry, inputs, seen);
  SmallVector<Value> read;
  SmallVector<AffineMap> maps;
  RankedTensorType type = getCountType(weight, element);
  for (Entry input : inputs) {
    Value value = input.getPointer();
    read.push_back(input.getInt() ? getCounts(cast<BlockArgument>(value))
                                  : value);
    maps.push_back(input.getInt() ? b.getMultiDimIdentityMap(3)
                                  : AffineMap::get(3, 0, b.getContext()));
  }
  maps.push_back(b.getMultiDimIdentityMap(3));
  Value empty = tensor::EmptyOp::create(b, loc, type, ValueRange());
  auto op = linalg::GenericOp::create(
      b, loc, type, read, empty, maps,
      SmallVector<utils::IteratorType>(3, utils::IteratorType::parallel),
      [&](OpBuilder &inner, Location, ValueRange entries) {
        DenseMap<Entry, Value> known;
        for (auto [input, value] : llvm::zip_first(inputs, entries.drop_back()))
          known[input] = convertScalarToDtype(
              inner, loc, value,
              getElementTypeOrSelf(input.getPointer().getType()),
              /*isUnsignedCast=*/false);
        Value result = build(inner, loc, entry, known);
        linalg::YieldOp::create(inner, loc,
                                convertScalarToDtype(inner, loc, result,
                                                     element,
                                                     /*isUnsignedCast=*/false));
      });
  return op.getResult(0);
}

/// The argument with what `state` is for each block.
BlockArgument BlockNumbers::getCounts(BlockArgument state) {
  auto [known, isNew] = counts.insert({state, BlockArgument()});
  if (!isNew)
    return known->second;
  bool isCount = corrections.getPart(state) == Part::Count;
  StringAttr name = attrs::name.ofArg(step, state.getArgNumber());
  return known->second = addCount(step, weight, name.getValue(),
                                  isCount ? "zeros" : "ones");
}

void BlockNumbers::carry() {
  Operation *terminator = step.getBody().front().getTerminator();
  // The next value of one may need another.
  for (size_t i = 0; i != counts.size(); ++i) {
    auto [state, argument] = *(counts.begin() + i);
    OpBuilder b(terminator);
    Location loc = argument.getLoc();
    Value next = compute(b, loc, getNextValue(step, state), b.getF32Type());
    carryCount(step, argument, next);
  }
}

/// Lets `op`, which computes blocks, read the numbers of each block. Returns
/// whether another operation has replaced it.
static bool readNumbers(linalg::LinalgOp op, BiasCorrections &corrections,
                        BlockNumbers &numbers) {
  // Entries of the body, and what reads them.
  llvm::MapVector<Value, SmallVector<OpOperand *>> uses;
  Block *body = op.getBlock();
  for (Operation &user : *body) {
    if (&user != body->getTerminator() &&
        corrections.getPart(user.getResult(0)) != Part::Blocks)
      continue;
    for (OpOperand &operand : user.getOpOperands())
      if (corrections.isOfBlocks(operand.get()))
        uses[operand.get()].push_back(&operand);
  }
  if (uses.empty())
    return false;
  OpBuilder b(op);
  Location loc = op.getLoc();
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  for (OpOperand *input : op.getDpsInputOperands()) {
    inputs.push_back(input->get());
    maps.push_back(op.getMatchingIndexingMap(input));
  }
  unsigned numOld = inputs.size();
  OpOperand *init = op.getDpsInitOperand(0);
  AffineMap results = op.getMatchingIndexingMap(init);
  for (auto &[value, operands] : uses) {
    inputs.push_back(
        numbers.compute(b, loc, value, getElementTypeOrSelf(value.getType())));
    auto type = cast<RankedTensorType>(init->get().getType());
    maps.push_back(
        getBroadcastMap(b, inputs.back(), type.getShape()).compose(results));
  }
  for (auto [i, entry] : llvm::enumerate(uses)) {
    Value own = body->insertArgument(
        numOld + i, getElementTypeOrSelf(inputs[numOld + i].getType()), loc);
    for (OpOperand *operand : entry.second)
      operand->set(own);
  }
  for (unsigned i = numOld; i-- != 0;)
    if (body->getArgument(i).use_empty()) {
      body->eraseArgument(i);
      inputs.erase(inputs.begin() + i);
      maps.erase(maps.begin() + i);
    }
  for (OpOperand &out : op.getDpsInitsMutable())
    maps.push_back(op.getMatchingIndexingMap(&out));
  auto made = linalg::GenericOp::create(b, loc, op->getResultTypes(), inputs,
                                        op.getDpsInits(), maps,
                                        op.getIteratorTypesArray());
  made.getRegion().takeBody(op->getRegion(0));
  made->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  op->replaceAllUsesWith(made);
  return true;
}

namespace {
struct CountBlocks : bsr::impl::BSRCountBlocksBase<CountBlocks> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    if (failed(getReturn(step)))
      return signalPassFailure();
    SmallVector<BlockArgument> weights = getDynamicWeights(step);
    if (weights.empty())
      return;
    BiasCorrections corrections(step);
    for (BlockArgument weight : weights)
      if (failed(countBlocks(step, weight, corrections)))
        signalPassFailure();
    // Until here what is known of values is by their places in memory.
    for (Operation *op : replaced)
      op->erase();
    replaced.clear();
  }

  LogicalResult countBlocks(func::FuncOp step, BlockArgument weight,
                            BiasCorrections &corrections) {
    Value next = getNextValue(step, weight);
    if (next == weight)
      return success();
    StringAttr name = attrs::name.ofArg(step, weight.getArgNumber());
    BlockNumbers numbers(step, corrections, weight);
    SmallVector<linalg::LinalgOp> ops;
    walkElementWise(next, [&](Value value, bool) {
      auto op = value.getDefiningOp<linalg::LinalgOp>();
      if (op && isElementWise(op) && !corrections.isUniform(value) &&
          !llvm::is_contained(ops, op))
        ops.push_back(op);
    });
    for (linalg::LinalgOp op : ops)
      if (readNumbers(op, corrections, numbers))
        replaced.push_back(op);
    if (Operation *unknown = corrections.getUnknown()) {
      step.emitError("expected the update of weight ")
          << name
          << " to use beta^t in 1 - beta^t, to count the steps of its blocks, "
             "but got it in '"
          << unknown->getName() << "'";
      return failure();
    }
    if (!numbers.getNumCounts()) {
      step.emitError("expected the update of weight ")
          << name
          << " to correct bias by 1 - beta^t, to count the steps of its "
             "blocks, but got none that does";
      return failure();
    }
    numbers.carry();
    ++numCounted;
    return success();
  }

  SmallVector<Operation *> replaced;
};
} // namespace

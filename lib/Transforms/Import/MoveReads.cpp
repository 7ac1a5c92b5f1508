// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes destinations that element-wise operations read operands of them: what
// asks whether an operation is element-wise looks at its operands only.

#include "bsr/Transforms/Import/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRMOVEREADS
#include "bsr/Transforms/Import/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Whether `op` is a loop nest without sums that reads what it overwrites.
static bool readsDestination(linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics() || op.hasDynamicShape() ||
      op.getNumLoops() != op.getNumParallelLoops())
    return false;
  // Not payloadUsesValueFromOperand: linalg.map says no to it, and reads.
  auto isRead = [&](OpOperand &init) {
    return !op.getMatchingBlockArgument(&init).use_empty();
  };
  auto isWhole = [&](OpOperand &init) {
    return op.getMatchingIndexingMap(&init).isPermutation();
  };
  return llvm::any_of(op.getDpsInitsMutable(), isRead) &&
         llvm::all_of(op.getDpsInitsMutable(), isWhole);
}

/// `op` as a generic, or null if it is none.
static linalg::GenericOp toGeneric(IRRewriter &rewriter, linalg::LinalgOp op) {
  if (auto generic = dyn_cast<linalg::GenericOp>(op.getOperation()))
    return generic;
  rewriter.setInsertionPoint(op);
  FailureOr<linalg::GenericOp> generic =
      linalg::generalizeNamedOp(rewriter, op);
  return succeeded(generic) ? *generic : linalg::GenericOp();
}

/// Whether every element of `value`, a number or a tensor, is 0.
static bool isZero(Value value) {
  if (auto fill = value.getDefiningOp<linalg::FillOp>())
    return isZero(fill.getInputs().front());
  auto generic = value.getDefiningOp<linalg::GenericOp>();
  if (generic && generic->getNumResults() == 1)
    value = generic.getBody()->getTerminator()->getOperand(0);
  return matchPattern(value, m_AnyZeroFloat()) || matchPattern(value, m_Zero());
}

/// x + y, outs y = 0 -> x: a product that sums over nothing is one of elements.
/// (What is -0 of it was 0.)
static void dropZeros(IRRewriter &rewriter, linalg::GenericOp op) {
  for (OpOperand &init : op.getDpsInitsMutable()) {
    BlockArgument read = op.getMatchingBlockArgument(&init);
    if (!read.hasOneUse() || !isZero(init.get()))
      continue;
    OpOperand &use = *read.use_begin();
    if (isa<arith::AddFOp, arith::AddIOp>(use.getOwner()))
      rewriter.replaceOp(use.getOwner(), use.getOwner()->getOperand(
                                             1 - use.getOperandNumber()));
  }
}

/// f(x, outs y) -> f(x, y, outs empty)
static void moveReads(IRRewriter &rewriter, linalg::GenericOp op) {
  rewriter.setInsertionPoint(op);
  SmallVector<Value> inputs(op.getDpsInputs()), inits;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray(), initMaps;
  unsigned numInputs = inputs.size();
  SmallVector<unsigned> read;
  for (OpOperand &init : op.getDpsInitsMutable()) {
    auto type = cast<RankedTensorType>(init.get().getType());
    initMaps.push_back(op.getMatchingIndexingMap(&init));
    if (!op.payloadUsesValueFromOperand(&init)) {
      inits.push_back(init.get());
      continue;
    }
    read.push_back(init.getOperandNumber());
    inputs.push_back(init.get());
    inits.push_back(tensor::EmptyOp::create(
        rewriter, op.getLoc(), type.getShape(), type.getElementType()));
  }
  maps.truncate(numInputs);
  for (unsigned number : read)
    maps.push_back(initMaps[number - numInputs]);
  llvm::append_range(maps, initMaps);
  auto moved = linalg::GenericOp::create(
      rewriter, op.getLoc(), op.getResultTypes(), inputs, inits, maps,
      op.getIteratorTypesArray(), /*bodyBuild=*/nullptr,
      linalg::getPrunedAttributeList(op));
  moved.getRegion().takeBody(op.getRegion());
  // The arguments of what was moved stand between those of inputs and inits.
  Block *body = moved.getBody();
  for (auto [index, number] : llvm::enumerate(read)) {
    BlockArgument old = body->getArgument(number + index);
    BlockArgument argument =
        body->insertArgument(numInputs + index, old.getType(), old.getLoc());
    body->getArgument(number + index + 1).replaceAllUsesWith(argument);
  }
  rewriter.replaceOp(op, moved.getResults());
}

namespace {
struct MoveReads : bsr::impl::BSRMoveReadsBase<MoveReads> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> ops;
    getOperation()->walk([&](linalg::LinalgOp op) {
      if (readsDestination(op))
        ops.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : ops)
      if (linalg::GenericOp generic = toGeneric(rewriter, op)) {
        dropZeros(rewriter, generic);
        if (!readsDestination(generic))
          continue;
        moveReads(rewriter, generic);
        ++numMoved;
      }
  }
};
} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Unrolls loops of a known number of steps.

#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRUNROLL
#include "bsr/Transforms/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The number of operations that `loop` becomes, or none if its trip count is
/// not known.
static std::optional<uint64_t> getUnrolledSize(scf::ForOp loop) {
  std::optional<APInt> trips = loop.getStaticTripCount();
  if (!trips)
    return std::nullopt;
  uint64_t size = 0;
  loop.getBody()->walk([&](linalg::LinalgOp) { ++size; });
  return llvm::SaturatingMultiply(trips->getLimitedValue(), size);
}

/// Whether `value` is a function of `source`, by operations within `loop`.
static bool dependsOn(Value value, Value source, scf::ForOp loop) {
  SmallVector<Value> worklist = {value};
  DenseSet<Value> seen;
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    if (next == source)
      return true;
    Operation *op = next.getDefiningOp();
    if (op && loop->isProperAncestor(op) && seen.insert(next).second)
      llvm::append_range(worklist, op->getOperands());
  }
  return false;
}

/// Whether `loop` counts the matrices of a stacked weight.
static bool countsMatrices(scf::ForOp loop) {
  WalkResult result = loop.getBody()->walk([&](tensor::ExtractSliceOp slice) {
    auto stack = dyn_cast<BlockArgument>(slice.getSource());
    auto func = stack ? dyn_cast<func::FuncOp>(stack.getOwner()->getParentOp())
                      : func::FuncOp();
    auto mark =
        func ? func.getArgAttrOfType<MarkAttr>(stack.getArgNumber(), "bsr.mark")
             : MarkAttr();
    if (!mark || !mark.getNumDims(MarkDim::Stack) || !slice.isDynamicOffset(0))
      return WalkResult::advance();
    Value index = slice.getDynamicOffset(0);
    return WalkResult(
        failure(llvm::any_of(loop.getBody()->getArguments(), [&](Value value) {
          return dependsOn(index, value, loop);
        })));
  });
  return result.wasInterrupted();
}

/// The entry of `tensor`, of rank 0, by operations on scalars.
static Value createEntry(OpBuilder &b, Value tensor) {
  Location loc = tensor.getLoc();
  if (auto elements = tensor.getDefiningOp<tensor::FromElementsOp>())
    return elements.getElements()[0];
  auto op = tensor.getDefiningOp<linalg::LinalgOp>();
  if (!op || !op.hasPureTensorSemantics() || op.getNumLoops() != 0)
    return tensor::ExtractOp::create(b, loc, tensor, ValueRange());
  IRMapping mapping;
  for (OpOperand &operand : op->getOpOperands())
    if (BlockArgument entry = op.getMatchingBlockArgument(&operand);
        !entry.use_empty())
      mapping.map(entry, isa<RankedTensorType>(operand.get().getType())
                             ? createEntry(b, operand.get())
                             : operand.get());
  for (Operation &inner : op.getBlock()->without_terminator())
    b.clone(inner, mapping);
  return mapping.lookupOrDefault(op.getBlock()->getTerminator()->getOperand(
      cast<OpResult>(tensor).getResultNumber()));
}

namespace {
struct Unroll : bsr::impl::BSRUnrollBase<Unroll> {
  using Base::Base;

  LogicalResult initialize(MLIRContext *context) override {
    if (maxOperations > 0)
      return success();
    return emitError(UnknownLoc::get(context),
                     "expected max-operations to be 1 or greater, but got ")
           << maxOperations.getValue();
  }

  void runOnOperation() override {
    // A walk in post-order: inner loops first, so their operations count.
    getOperation()->walk([&](scf::ForOp loop) {
      std::optional<uint64_t> size = getUnrolledSize(loop);
      if (!size || (*size > maxOperations && !countsMatrices(loop)) ||
          failed(loopUnrollFull(loop)))
        return;
      ++numUnrolled;
    });
    getOperation()->walk([](tensor::ExtractOp extract) {
      if (extract.getIndices().empty() && extract.getType().isIntOrIndex()) {
        OpBuilder b(extract);
        extract.replaceAllUsesWith(createEntry(b, extract.getTensor()));
        extract.erase();
      }
    });
  }
};
} // namespace

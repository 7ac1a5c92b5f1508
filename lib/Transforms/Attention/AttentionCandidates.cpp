// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which products may be the scores of an attention.

#include "AttentionCandidates.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::bsr;

int64_t bsr::getNumKeys(linalg::GenericOp scores) {
  FailureOr<linalg::ContractionDimensions> dims =
      linalg::inferContractionDims(scores);
  int64_t keys = 0;
  if (succeeded(dims))
    for (unsigned loop : llvm::concat<unsigned>(dims->m, dims->n))
      keys = std::max(keys, scores.getStaticLoopRanges()[loop]);
  return keys;
}

/// Calls `visit` for what is computed of `scores`, a product, up to other
/// products. False if that is too much to look at all of it.
static bool
forComputed(linalg::GenericOp scores,
            llvm::function_ref<void(linalg::GenericOp, bool isProduct)> visit) {
  constexpr size_t most = 64;
  bool isAll = true;
  SetVector<Operation *> reached;
  reached.insert(scores);
  for (size_t next = 0; next != reached.size(); ++next) {
    auto op = dyn_cast<linalg::GenericOp>(reached[next]);
    if (op && next != 0) {
      bool isProduct =
          linalg::isaContractionOpInterface(op) && op.getNumDpsInputs() == 2;
      visit(op, isProduct);
      if (isProduct)
        continue;
    }
    for (Operation *user : reached[next]->getUsers()) {
      // What reads scores inside of its body computes something of them, too.
      user = scores->getBlock()->findAncestorOpInBlock(*user);
      if (reached.size() < most)
        reached.insert(user);
      else
        isAll &= reached.contains(user);
    }
  }
  return isAll;
}

bool bsr::isExponentiated(linalg::GenericOp scores) {
  bool isPower = false, isSummed = false;
  forComputed(scores, [&](linalg::GenericOp op, bool isProduct) {
    if (isProduct)
      return;
    isSummed |= op.getNumReductionLoops() != 0 && isPower;
    op.walk([&](Operation *inner) {
      isPower |= isa<math::ExpOp, math::Exp2Op>(inner);
    });
  });
  return isPower && isSummed;
}

/// What `value` was before it was reshaped, permuted or converted.
static Value getUnconverted(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    bool isCopy = generic && generic.getNumDpsInputs() == 1 &&
                  generic.getNumReductionLoops() == 0 &&
                  generic->getNumResults() == 1 &&
                  llvm::all_of(generic.getBody()->without_terminator(),
                               llvm::IsaPred<arith::ExtFOp, arith::TruncFOp>);
    if (!isCopy && !isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op))
      return value;
    value = op->getOperand(0);
  }
  return value;
}

bool bsr::mayHaveValues(linalg::GenericOp scores) {
  SmallVector<Value> own = llvm::map_to_vector(
      scores.getDpsInputs(), [](Value value) { return getUnconverted(value); });
  bool areMultiplied = false;
  bool isAll = forComputed(scores, [&](linalg::GenericOp op, bool isProduct) {
    // One of its operands comes from the scores.
    areMultiplied |=
        isProduct && llvm::none_of(op.getDpsInputs(), [&](Value x) {
          return llvm::is_contained(own, getUnconverted(x));
        });
  });
  return areMultiplied || !isAll;
}

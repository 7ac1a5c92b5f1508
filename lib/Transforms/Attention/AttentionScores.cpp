// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows the scores of a product through all that is computed of them.

#include "AttentionScores.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/ElementWise.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <set>

using namespace mlir;
using namespace mlir::bsr;

bool bsr::isProduct(linalg::GenericOp op) {
  return op.getNumDpsInputs() == 2 && op->getNumResults() == 1 &&
         op.hasPureTensorSemantics() && linalg::isaContractionOpInterface(op) &&
         isZeros(op.getDpsInits()[0]) &&
         llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) {
           return map.isProjectedPermutation();
         });
}

bool AttentionScores::stop(Operation *op, const Twine &reason) {
  if (!obstacle.op && found.numBatchDims != 0)
    obstacle = {op, reason.str()};
  return false;
}

LabelledTensor AttentionScores::getOperand(linalg::GenericOp op,
                                           unsigned operand,
                                           const Labels &loops) const {
  LabelledTensor result{op->getOperand(operand), {}};
  for (AffineExpr expr : op.getIndexingMapsArray()[operand].getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    result.labels.push_back(dim ? loops[dim.getPosition()] : -1);
  }
  return result;
}

LabelledTensor AttentionScores::getResult(linalg::GenericOp op,
                                          const Labels &loops) const {
  LabelledTensor result = getOperand(op, op.getNumDpsInputs(), loops);
  result.tensor = op->getResult(0);
  return result;
}

/// True if `op` adds up, over batch dimensions and nothing else, what it reads.
bool AttentionScores::isBatchSum(linalg::GenericOp op, const Labels &loops) {
  SmallVector<unsigned> reduced;
  op.getReductionDims(reduced);
  Block *body = op.getBody();
  Operation *last = body->getTerminator()->getOperand(0).getDefiningOp();
  bool isOverBatch = llvm::all_of(reduced, [&](unsigned loop) {
    return op.getStaticLoopRanges()[loop] == 1 ||
           (loops[loop] >= 0 && loops[loop] < found.numBatchDims);
  });
  bool isAny = llvm::any_of(reduced, [&](unsigned loop) {
    return op.getStaticLoopRanges()[loop] != 1;
  });
  return isAny && isOverBatch && op.getNumDpsInputs() == 1 &&
         op->getNumResults() == 1 && isZeros(op.getDpsInits()[0]) &&
         isa_and_nonnull<arith::AddFOp>(last) &&
         llvm::hasSingleElement(body->without_terminator()) &&
         llvm::is_contained(last->getOperands(), body->getArgument(0)) &&
         llvm::is_contained(last->getOperands(), body->getArgument(1));
}

bool AttentionScores::areNamed(linalg::GenericOp op, const Labels &loops) {
  return llvm::all_of(llvm::zip_equal(loops, op.getStaticLoopRanges()),
                      [](auto it) {
                        auto [label, range] = it;
                        return label >= 0 || range == 1;
                      });
}

bool AttentionScores::followGeneric(linalg::GenericOp op) {
  std::optional<Labels> loops = getLoopLabels(op);
  if (!loops)
    return stop(op, "reads scores of two places at once");
  for (Value init : op.getDpsInits())
    if (labels.count(init))
      return stop(op, "starts from scores");
  if (isProduct(op) && !areNamed(op, *loops)) {
    bool isFirst = labels.count(op->getOperand(0));
    if (isFirst && labels.count(op->getOperand(1)))
      return stop(op, "multiplies scores with scores");
    unsigned operand = isFirst ? 0 : 1;
    sites.push_back({op, operand, getOperand(op, operand, *loops)});
    return true;
  }
  if (isBatchSum(op, *loops)) {
    sums.push_back({op, 0, getOperand(op, 0, *loops)});
    return true;
  }
  if (!isComputable(op))
    return stop(op, "is no arithmetic of single scores");
  SmallVector<unsigned> reduced;
  op.getReductionDims(reduced);
  if (!reduced.empty())
    rowReductions.insert(op);
  for (OpResult result : op->getResults()) {
    Labels &known = labels[result];
    for (AffineExpr expr :
         op.getIndexingMapMatchingResult(result).getResults()) {
      auto loop = dyn_cast<AffineDimExpr>(expr);
      known.push_back(loop ? (*loops)[loop.getPosition()] : -1);
    }
  }
  return true;
}

/// Follows the scores through `op`, which reads them.
bool AttentionScores::follow(Operation *op) {
  if (op->use_empty() && op->getNumResults() != 0)
    return true;
  if (auto generic = dyn_cast<linalg::GenericOp>(op))
    return followGeneric(generic);
  if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op)) {
    bool isWhole = true;
    Labels reshaped = getReshaped(op, labels[op->getOperand(0)],
                                  /*isBackward=*/false, isWhole);
    if (!isWhole)
      return stop(op, isa<tensor::ExpandShapeOp>(op)
                          ? "splits a dimension of the scores"
                          : "merges dimensions of the scores");
    labels[op->getResult(0)] = reshaped;
    return true;
  }
  return stop(op, "uses the scores in another way");
}

bool AttentionScores::follow() {
  std::optional<unsigned> keyDim = findKeyDim();
  if (!keyDim || !setDims(*keyDim))
    return false;
  Block *block = found.scores->getBlock();
  // What reads scores, in the order of the block.
  auto isBefore = [](Operation *a, Operation *b) {
    return a->isBeforeInBlock(b);
  };
  std::set<Operation *, decltype(isBefore)> readers(isBefore);
  auto addReaders = [&](Operation *op) {
    for (Value result : op->getResults())
      if (labels.count(result))
        for (Operation *user : result.getUsers())
          if (user->getBlock() == block)
            readers.insert(user);
  };
  addReaders(found.scores);
  while (!readers.empty()) {
    Operation *op = *readers.begin();
    readers.erase(readers.begin());
    if (!follow(op))
      return false;
    addReaders(op);
  }
  for (auto &[value, known] : labels)
    for (Operation *user : value.getUsers())
      if (user->getBlock() != block)
        return stop(block->findAncestorOpInBlock(*user),
                    "reads scores inside of a body");
  if (!nameDims())
    return false;
  findTerms();
  return true;
}

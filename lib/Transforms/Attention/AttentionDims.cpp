// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names the dimensions of scores and of what is computed from them: batch,
// query, key and features.

#include "AttentionScores.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/ElementWise.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::bsr;

static bool isMaximum(linalg::GenericOp op) {
  return !op.getBody()->getOps<arith::MaximumFOp>().empty() ||
         !op.getBody()->getOps<arith::MaxNumFOp>().empty();
}

DenseSet<Operation *> bsr::findMaximized(Block &block) {
  SetVector<Operation *> reached;
  for (Operation &op : block)
    op.walk([&](linalg::GenericOp generic) {
      if (generic.getNumReductionLoops() != 0 && isMaximum(generic))
        reached.insert(generic);
    });
  for (size_t next = 0; next != reached.size(); ++next)
    for (Value operand : reached[next]->getOperands()) {
      Operation *producer = operand.getDefiningOp();
      if (producer &&
          (isPointwise(producer) ||
           isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(producer)))
        reached.insert(producer);
    }
  return DenseSet<Operation *>(reached.begin(), reached.end());
}

/// The dimension of the scores that a maximum of them, element by element
/// changed, is taken over. Of scores with batch dimensions, which logits do not
/// have, it is found behind reshapes as well: these may be in the way.
std::optional<unsigned> AttentionScores::findKeyDim() {
  FailureOr<linalg::ContractionDimensions> loops =
      linalg::inferContractionDims(found.scores);
  bool hasBatch = succeeded(loops) && !loops->batch.empty();
  SetVector<Value> reached;
  reached.insert(found.scores->getResult(0));
  DenseMap<Value, SmallVector<int64_t>> dims;
  dims[found.scores->getResult(0)] = llvm::to_vector(llvm::seq<int64_t>(
      0, found.scores.getRank(found.scores.getDpsInitOperand(0))));
  for (size_t next = 0; next != reached.size(); ++next) {
    Value value = reached[next];
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      if (!maximized.contains(user))
        continue;
      if (hasBatch && isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(user))
        if (Value result = user->getResult(0); reached.insert(result)) {
          bool isWhole = true;
          Labels reshaped = getReshaped(user, dims[value],
                                        /*isBackward=*/false, isWhole);
          dims[result] = reshaped;
        }
      auto op = dyn_cast<linalg::GenericOp>(user);
      if (!op || op.isDpsInit(&use) || linalg::isaContractionOpInterface(op))
        continue;
      SmallVector<int64_t> loops(op.getNumLoops(), -1);
      for (auto [expr, dim] : llvm::zip_equal(
               op.getMatchingIndexingMap(&use).getResults(), dims[value]))
        if (auto loop = dyn_cast<AffineDimExpr>(expr))
          loops[loop.getPosition()] = dim;
      SmallVector<unsigned> reduced;
      op.getReductionDims(reduced);
      if (!reduced.empty()) {
        if (reduced.size() == 1 && loops[reduced[0]] >= 0 && isMaximum(op))
          return loops[reduced[0]];
        continue;
      }
      if (op->getNumResults() != 1 || !reached.insert(op->getResult(0)))
        continue;
      SmallVector<int64_t> &result = dims[op->getResult(0)];
      for (AffineExpr expr :
           op.getIndexingMapMatchingResult(op->getResult(0)).getResults()) {
        auto loop = dyn_cast<AffineDimExpr>(expr);
        result.push_back(loop ? loops[loop.getPosition()] : -1);
      }
    }
  }
  return std::nullopt;
}

/// Names the dimensions of the scores' product. Of several dimensions that the
/// queries alone have, the longest is that of the queries (the last one of
/// those): the others are heads that share keys.
bool AttentionScores::setDims(unsigned keyDim) {
  linalg::GenericOp product = found.scores;
  FailureOr<linalg::ContractionDimensions> dims =
      linalg::inferContractionDims(product);
  if (failed(dims) || dims->k.size() != 1)
    return false;
  AffineMap map = product.getIndexingMapsArray()[2];
  unsigned keyLoop = cast<AffineDimExpr>(map.getResult(keyDim)).getPosition();
  bool isKeyFirst = llvm::is_contained(dims->m, keyLoop);
  ArrayRef<unsigned> keyLoops = isKeyFirst ? dims->m : dims->n;
  ArrayRef<unsigned> queryLoops = isKeyFirst ? dims->n : dims->m;
  if (keyLoops.size() != 1 || keyLoops[0] != keyLoop || queryLoops.empty())
    return false;
  SmallVector<int64_t> ranges = product.getStaticLoopRanges();
  std::optional<unsigned> queryLoop;
  for (AffineExpr expr : map.getResults()) {
    unsigned loop = cast<AffineDimExpr>(expr).getPosition();
    if (llvm::is_contained(queryLoops, loop) &&
        (!queryLoop || ranges[loop] >= ranges[*queryLoop]))
      queryLoop = loop;
  }
  Labels loops(product.getNumLoops(), -1);
  // Batch dimensions in the order of the scores'.
  for (AffineExpr expr : map.getResults()) {
    unsigned loop = cast<AffineDimExpr>(expr).getPosition();
    if (loop != *queryLoop && loop != keyLoop)
      loops[loop] = found.numBatchDims++;
  }
  loops[*queryLoop] = found.getQueryDim();
  loops[keyLoop] = found.getKeyDim();
  loops[dims->k[0]] = found.getFeatureDim();
  found.extents.assign(found.numBatchDims + 4, 1);
  for (auto [loop, range] : llvm::enumerate(product.getStaticLoopRanges()))
    found.extents[loops[loop]] = range;
  found.q = getOperand(product, isKeyFirst ? 1 : 0, loops);
  found.k = getOperand(product, isKeyFirst ? 0 : 1, loops);
  labels[product->getResult(0)] = getResult(product, loops).labels;
  return true;
}

/// What the loops of `op` are, by what it reads and makes of the scores;
/// nothing if that is two things.
std::optional<Labels> AttentionScores::getLoopLabels(linalg::GenericOp op) {
  Labels loops(op.getNumLoops(), -1);
  SmallVector<Value> tensors(op.getDpsInputs());
  llvm::append_range(tensors, op->getResults());
  for (auto [tensor, map] :
       llvm::zip_equal(tensors, op.getIndexingMapsArray())) {
    auto known = labels.find(tensor);
    if (known == labels.end())
      continue;
    for (auto [expr, label] :
         llvm::zip_equal(map.getResults(), known->second)) {
      auto loop = dyn_cast<AffineDimExpr>(expr);
      if (!loop || label < 0)
        continue;
      int64_t &other = loops[loop.getPosition()];
      if (other >= 0 && other != label)
        return std::nullopt;
      other = label;
    }
  }
  return loops;
}

/// Finds the products that make what `value` is element by element.
void AttentionScores::findGradient(Value value, const Labels &labels) {
  Operation *producer = value.getDefiningOp();
  if (!producer || this->labels.count(value) || products.count(producer) ||
      !searched.insert(value).second)
    return;
  if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(producer)) {
    bool isWhole = true;
    Labels source = getReshaped(producer, labels, /*isBackward=*/true, isWhole);
    if (isWhole)
      findGradient(producer->getOperand(0), source);
    return;
  }
  auto op = dyn_cast<linalg::GenericOp>(producer);
  if (!op)
    return;
  Labels loops(op.getNumLoops(), -1);
  AffineMap map = op.getIndexingMapMatchingResult(cast<OpResult>(value));
  for (auto [expr, label] : llvm::zip_equal(map.getResults(), labels))
    if (auto loop = dyn_cast<AffineDimExpr>(expr))
      loops[loop.getPosition()] = label;
  if (isProduct(op)) {
    if (llvm::is_contained(labels, found.getKeyDim()) &&
        llvm::is_contained(labels, found.getQueryDim()))
      products[op] = loops;
    return;
  }
  if (!isPointwise(op))
    return;
  for (unsigned number = 0; number != op.getNumDpsInputs(); ++number)
    if (isa<RankedTensorType>(op->getOperand(number).getType()))
      findGradient(op->getOperand(number),
                   getOperand(op, number, loops).labels);
}

/// Names dimensions that an operation reads or makes by those that it has in
/// common with others, until nothing is new; finds the products behind what is
/// read beside the scores.
bool AttentionScores::nameDims() {
  SmallVector<linalg::GenericOp> ops;
  for (auto &[value, known] : labels)
    if (auto op = value.getDefiningOp<linalg::GenericOp>();
        op && op != found.scores && value == op->getResult(0))
      ops.push_back(op);
  for (bool isNew = true; isNew;) {
    isNew = false;
    for (linalg::GenericOp op : ops) {
      std::optional<Labels> loops = getLoopLabels(op);
      if (!loops)
        return stop(op, "reads scores of two places at once");
      SmallVector<AffineMap> maps = op.getIndexingMapsArray();
      SmallVector<Value> tensors(op.getDpsInputs());
      llvm::append_range(tensors, op->getResults());
      for (auto [tensor, map] : llvm::zip_equal(tensors, maps)) {
        auto known = labels.find(tensor);
        if (known == labels.end())
          continue;
        for (auto [expr, label] :
             llvm::zip_equal(map.getResults(), known->second)) {
          auto loop = dyn_cast<AffineDimExpr>(expr);
          if (!loop || label >= 0 || (*loops)[loop.getPosition()] < 0)
            continue;
          label = (*loops)[loop.getPosition()];
          isNew = true;
        }
      }
    }
  }
  for (linalg::GenericOp op : ops) {
    Labels loops = *getLoopLabels(op);
    SmallVector<unsigned> reduced;
    op.getReductionDims(reduced);
    // A sum of one summand may be over anything.
    for (unsigned loop : reduced)
      if (loops[loop] != found.getKeyDim() &&
          op.getStaticLoopRanges()[loop] != 1)
        return stop(op,
                    "reduces scores over a dimension that is not the keys'");
    for (unsigned number = 0; number != op.getNumDpsInputs(); ++number)
      if (isa<RankedTensorType>(op->getOperand(number).getType()))
        findGradient(op->getOperand(number),
                     getOperand(op, number, loops).labels);
  }
  for (Site &site : llvm::concat<Site>(sites, sums))
    site.read.labels = labels[site.read.tensor];
  return true;
}

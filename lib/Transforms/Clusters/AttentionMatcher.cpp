// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds attention, and its gradient, among products and what is between them.
//
// Programs write a softmax and its gradient in many ways. What is compared is
// not how they are written but what they compute: the row-wise operations
// between the products are evaluated for rows of random numbers, and must give
// what the formulas of attention give, to 9 digits. None of them may compare
// scores by their size: they are analytic then, and functions that agree around
// 0 agree everywhere.

#include "AttentionMatcher.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Kernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>
#include <random>

using namespace mlir;
using namespace mlir::bsr;

/// Rows that are compared, and keys of each.
static constexpr int64_t numTrials = 8, numSamples = 5;
static constexpr double tolerance = 1e-9;

static ArrayRef<int64_t> getShape(Value tensor) {
  return cast<RankedTensorType>(tensor.getType()).getShape();
}

/// True if `op` is a sum of products of two tensors that starts from zero.
static bool isProduct(linalg::GenericOp op) {
  return op.getNumDpsInputs() == 2 && op->getNumResults() == 1 &&
         op.hasPureTensorSemantics() && linalg::isaContractionOpInterface(op) &&
         isZeros(op.getDpsInits()[0]) &&
         llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) {
           return map.isProjectedPermutation();
         });
}

namespace {
/// Follows the scores of one product.
class Matcher {
public:
  Matcher(linalg::GenericOp scores, AttentionObstacle &obstacle)
      : scores(scores), obstacle(obstacle) {}

  std::optional<AttentionMatch> match();

private:
  /// A product that reads what is computed from the scores.
  struct Site {
    linalg::GenericOp op;
    unsigned operand;
    Labelled read;
  };

  std::optional<unsigned> findKeyDim();
  bool setDims(unsigned keyDim);
  bool follow();
  bool nameDims();
  bool follow(Operation *op);
  bool followGeneric(linalg::GenericOp op);
  std::optional<Labels> getLoopLabels(linalg::GenericOp op);
  void findGradient(Value value, const Labels &labels);
  bool findScore();
  bool addToScore(linalg::GenericOp op);
  bool setOutput(const Site &site);
  bool setGradients(ArrayRef<Site> rows);
  bool isSmooth(const Site &site);
  bool isSmooth(linalg::GenericOp op);
  bool depends(Value value);
  bool compare(const Site &site, bool isGradient);
  /// Notes what is in the way, but of products without a batch dimension, which
  /// are logits rather than attention.
  bool stop(Operation *op, const Twine &reason) {
    if (!obstacle.op && found.numBatchDims != 0)
      obstacle = {op, reason.str()};
    return false;
  }

  Labelled getOperand(linalg::GenericOp op, unsigned operand,
                      const Labels &loops) const;
  Labelled getResult(linalg::GenericOp op, const Labels &loops) const;

  linalg::GenericOp scores;
  AttentionObstacle &obstacle;
  AttentionMatch found;
  /// All that is computed from the scores row by row.
  llvm::MapVector<Value, Labels> labels;
  DenseSet<Operation *> rowReductions;
  SmallVector<Site> sites;
  /// Other products of queries and keys: what the dimensions of each are.
  llvm::MapVector<Operation *, Labels> products;
  Value score;
  /// Whether values depend on the scores, or on the probabilities' gradient.
  DenseMap<Value, bool> dependent;
};
} // namespace

Labelled Matcher::getOperand(linalg::GenericOp op, unsigned operand,
                             const Labels &loops) const {
  Labelled result{op->getOperand(operand), {}};
  for (AffineExpr expr : op.getIndexingMapsArray()[operand].getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    result.labels.push_back(dim ? loops[dim.getPosition()] : -1);
  }
  return result;
}

Labelled Matcher::getResult(linalg::GenericOp op, const Labels &loops) const {
  Labelled result = getOperand(op, op.getNumDpsInputs(), loops);
  result.tensor = op->getResult(0);
  return result;
}

Labelled bsr::getUnpermuted(Labelled tensor) {
  while (true) {
    SmallVector<int64_t> permutation;
    Value source = getPermutedSource(tensor.tensor, permutation);
    if (!source)
      return tensor;
    Labels labels(permutation.size());
    for (auto [dim, from] : llvm::enumerate(permutation))
      labels[from] = tensor.labels[dim];
    tensor = {source, labels};
  }
}

/// The dimension of the scores that a maximum of them, element by element
/// changed, is taken over.
std::optional<unsigned> Matcher::findKeyDim() {
  SetVector<Value> reached;
  reached.insert(scores->getResult(0));
  DenseMap<Value, SmallVector<int64_t>> dims;
  dims[scores->getResult(0)] =
      llvm::to_vector(llvm::seq<int64_t>(0, getShape(reached[0]).size()));
  for (size_t next = 0; next != reached.size(); ++next) {
    Value value = reached[next];
    for (OpOperand &use : value.getUses()) {
      auto op = dyn_cast<linalg::GenericOp>(use.getOwner());
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
        bool isMaximum = !op.getBody()->getOps<arith::MaximumFOp>().empty() ||
                         !op.getBody()->getOps<arith::MaxNumFOp>().empty();
        if (reduced.size() == 1 && loops[reduced[0]] >= 0 && isMaximum)
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

/// Names the dimensions of the scores' product.
bool Matcher::setDims(unsigned keyDim) {
  FailureOr<linalg::ContractionDimensions> dims =
      linalg::inferContractionDims(scores);
  if (failed(dims) || dims->m.size() != 1 || dims->n.size() != 1 ||
      dims->k.size() != 1)
    return false;
  AffineMap map = scores.getIndexingMapsArray()[2];
  unsigned keyLoop = cast<AffineDimExpr>(map.getResult(keyDim)).getPosition();
  bool isKeyFirst = dims->m[0] == keyLoop;
  if (!isKeyFirst && dims->n[0] != keyLoop)
    return false;
  Labels loops(scores.getNumLoops(), -1);
  found.scores = scores;
  // Batch dimensions in the order of the scores'.
  for (AffineExpr expr : map.getResults()) {
    unsigned loop = cast<AffineDimExpr>(expr).getPosition();
    if (llvm::is_contained(dims->batch, loop))
      loops[loop] = found.numBatchDims++;
  }
  loops[isKeyFirst ? dims->n[0] : dims->m[0]] = found.getQueryDim();
  loops[keyLoop] = found.getKeyDim();
  loops[dims->k[0]] = found.getFeatureDim();
  found.extents.assign(found.numBatchDims + 4, 1);
  for (auto [loop, range] : llvm::enumerate(scores.getStaticLoopRanges()))
    found.extents[loops[loop]] = range;
  found.q = getOperand(scores, isKeyFirst ? 1 : 0, loops);
  found.k = getOperand(scores, isKeyFirst ? 0 : 1, loops);
  labels[scores->getResult(0)] = getResult(scores, loops).labels;
  return true;
}

/// What the loops of `op` are, by what it reads and makes of the scores;
/// nothing if that is two things.
std::optional<Labels> Matcher::getLoopLabels(linalg::GenericOp op) {
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
void Matcher::findGradient(Value value, const Labels &labels) {
  auto op = value.getDefiningOp<linalg::GenericOp>();
  if (!op || this->labels.count(value) || products.count(op))
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

bool Matcher::followGeneric(linalg::GenericOp op) {
  std::optional<Labels> loops = getLoopLabels(op);
  if (!loops)
    return stop(op, "reads scores of two places at once");
  for (Value init : op.getDpsInits())
    if (labels.count(init))
      return stop(op, "starts from scores");
  bool isWhole = llvm::all_of(llvm::zip_equal(*loops, op.getStaticLoopRanges()),
                              [](auto it) {
                                auto [label, range] = it;
                                return label >= 0 || range == 1;
                              });
  if (isProduct(op) && !isWhole) {
    bool isFirst = labels.count(op->getOperand(0));
    if (isFirst && labels.count(op->getOperand(1)))
      return stop(op, "multiplies scores with scores");
    unsigned operand = isFirst ? 0 : 1;
    sites.push_back({op, operand, getOperand(op, operand, *loops)});
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
bool Matcher::follow(Operation *op) {
  if (op->use_empty() && op->getNumResults() != 0)
    return true;
  if (auto generic = dyn_cast<linalg::GenericOp>(op))
    return followGeneric(generic);
  // Dimensions of one element come and go.
  auto getLarge = [](ArrayRef<int64_t> group, ArrayRef<int64_t> shape) {
    return llvm::filter_to_vector(group,
                                  [&](int64_t dim) { return shape[dim] != 1; });
  };
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
    ArrayRef<int64_t> shape = expand.getResultType().getShape();
    Labels result(shape.size(), -1);
    for (auto [group, label] : llvm::zip_equal(expand.getReassociationIndices(),
                                               labels[expand.getSrc()])) {
      SmallVector<int64_t> large = getLarge(group, shape);
      if (large.size() > 1)
        return stop(op, "splits a dimension of the scores");
      if (!large.empty())
        result[large.front()] = label;
    }
    labels[expand.getResult()] = result;
    return true;
  }
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    ArrayRef<int64_t> shape = collapse.getSrcType().getShape();
    Labels source = labels[collapse.getSrc()], result;
    for (ArrayRef<int64_t> group : collapse.getReassociationIndices()) {
      SmallVector<int64_t> large = getLarge(group, shape);
      if (large.size() > 1)
        return stop(op, "merges dimensions of the scores");
      result.push_back(large.empty() ? -1 : source[large.front()]);
    }
    labels[collapse.getResult()] = result;
    return true;
  }
  return stop(op, "uses the scores in another way");
}

/// Names dimensions that an operation reads or makes by those that it has in
/// common with others, until nothing is new; finds the products behind what is
/// read beside the scores.
bool Matcher::nameDims() {
  SmallVector<linalg::GenericOp> ops;
  for (auto op : scores->getBlock()->getOps<linalg::GenericOp>())
    if (op != scores && labels.count(op->getResult(0)))
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
  for (Site &site : sites)
    site.read.labels = labels[site.read.tensor];
  return true;
}

/// Follows the scores through all that is computed of them row by row.
bool Matcher::follow() {
  Block *block = scores->getBlock();
  for (Operation *op = scores->getNextNode(); op; op = op->getNextNode()) {
    if (llvm::any_of(op->getOperands(),
                     [&](Value operand) { return labels.count(operand); }) &&
        !follow(op))
      return false;
  }
  for (auto &[value, known] : labels)
    for (Operation *user : value.getUsers())
      if (user->getBlock() != block)
        return stop(block->findAncestorOpInBlock(*user),
                    "reads scores inside of a body");
  return nameDims();
}

/// The number that all entries of `tensor` are.
static std::optional<double> getConstant(Value tensor) {
  EntryValues values(
      [](Value, ArrayRef<int64_t>) { return std::optional<double>(); });
  // The first and the last entry, of what is the same everywhere.
  Value at = tensor;
  while (Operation *op = at.getDefiningOp()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (generic && isPointwise(generic) && getYieldedInput(generic)) {
      at = getYieldedInput(generic)->get();
      continue;
    }
    if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op)) {
      at = op->getOperand(0);
      continue;
    }
    break;
  }
  if (!isa<RankedTensorType>(at.getType())) {
    FloatAttr number;
    auto constant = at.getDefiningOp<arith::ConstantOp>();
    if (constant)
      number = dyn_cast<FloatAttr>(constant.getValue());
    return number ? std::optional(number.getValueAsDouble()) : std::nullopt;
  }
  Operation *op = at.getDefiningOp();
  auto constant = dyn_cast_or_null<arith::ConstantOp>(op);
  if (!isa_and_nonnull<linalg::FillOp>(op) &&
      !(constant && isa<SplatElementsAttr>(constant.getValue())))
    return std::nullopt;
  return values.get(at, SmallVector<int64_t>(getShape(at).size(), 0));
}

/// Takes `op`, which changes the score element by element, into the score:
/// scale first, then biases, then masks. False if it is something else.
bool Matcher::addToScore(linalg::GenericOp op) {
  if (!isPointwise(op) || op->getNumResults() != 1)
    return false;
  std::optional<Labels> loops = getLoopLabels(op);
  if (!loops || llvm::is_contained(*loops, -1))
    return false;
  Block *body = op.getBody();
  auto isScore = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && argument.getOwner() == body &&
           argument.getArgNumber() < op.getNumDpsInputs() &&
           op->getOperand(argument.getArgNumber()) == score;
  };
  auto getTensor = [&](Value value) -> Labelled {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != body ||
        argument.getArgNumber() >= op.getNumDpsInputs())
      return {};
    Value operand = op->getOperand(argument.getArgNumber());
    if (!isa<RankedTensorType>(operand.getType()) || labels.count(operand))
      return {};
    return getOperand(op, argument.getArgNumber(), *loops);
  };
  auto getNumber = [&](Value value) -> std::optional<double> {
    if (value.getParentBlock() != body)
      return getConstant(value);
    Labelled tensor = getTensor(value);
    return tensor ? getConstant(tensor.tensor) : std::nullopt;
  };
  Value yielded = body->getTerminator()->getOperand(0);
  if (isScore(yielded))
    return true;
  Operation *last = yielded.getDefiningOp();
  if (!last || !llvm::hasSingleElement(body->without_terminator()))
    return false;
  if (isa<arith::ExtFOp, arith::TruncFOp>(last))
    return isScore(last->getOperand(0));
  if (isa<arith::MulFOp, arith::DivFOp>(last)) {
    bool isFirst = isScore(last->getOperand(0));
    if (!isFirst && (isa<arith::DivFOp>(last) || !isScore(last->getOperand(1))))
      return false;
    std::optional<double> factor = getNumber(last->getOperand(isFirst ? 1 : 0));
    if (!factor || !found.biases.empty() || !found.masks.empty())
      return false;
    found.scale = isa<arith::DivFOp>(last) ? found.scale / *factor
                                           : found.scale * *factor;
    return true;
  }
  if (isa<arith::AddFOp>(last)) {
    bool isFirst = isScore(last->getOperand(0));
    if (!isFirst && !isScore(last->getOperand(1)))
      return false;
    Labelled bias = getTensor(last->getOperand(isFirst ? 1 : 0));
    if (!bias || !found.masks.empty())
      return false;
    found.biases.push_back(bias);
    return true;
  }
  if (auto select = dyn_cast<arith::SelectOp>(last)) {
    bool isTrue = isScore(select.getTrueValue());
    if (!isTrue && !isScore(select.getFalseValue()))
      return false;
    std::optional<double> fill =
        getNumber(isTrue ? select.getFalseValue() : select.getTrueValue());
    Labelled mask = getTensor(select.getCondition());
    if (!fill || !mask || std::isnan(*fill) || *fill == INFINITY ||
        (found.fill && *found.fill != *fill))
      return false;
    found.fill = fill;
    found.masks.push_back({mask, !isTrue});
    return true;
  }
  return false;
}

/// Finds what is exponentiated: the product with all that is applied to it
/// element by element before its rows are reduced.
bool Matcher::findScore() {
  score = scores->getResult(0);
  while (true) {
    linalg::GenericOp next;
    for (Operation *user : score.getUsers()) {
      auto op = dyn_cast<linalg::GenericOp>(user);
      if (!op || !labels.count(op->getResult(0)) || rowReductions.contains(op))
        continue;
      AttentionMatch before = found;
      if (addToScore(op)) {
        next = op;
        break;
      }
      found = before;
    }
    if (!next)
      return true;
    score = next->getResult(0);
  }
}

/// True if `value` is computed from products of queries and keys.
bool Matcher::depends(Value value) {
  auto [known, isNew] = dependent.try_emplace(value, false);
  if (!isNew)
    return known->second;
  Operation *op = value.getDefiningOp();
  bool result = false;
  if (op == scores || (op && products.count(op)))
    result = true;
  else if (auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
           generic
               ? isPointwise(generic) || rowReductions.contains(generic)
               : isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp,
                                 tensor::ExtractSliceOp>(op))
    result = llvm::any_of(op->getOperands(),
                          [&](Value operand) { return depends(operand); });
  return dependent[value] = result;
}

/// True if `op` compares nothing that depends on scores, but with infinities
/// and for NaN, or to find the maximum of a row.
bool Matcher::isSmooth(linalg::GenericOp op) {
  DenseSet<Value> varying;
  for (auto [operand, argument] :
       llvm::zip_equal(op->getOperands(), op.getBody()->getArguments()))
    if (depends(operand) || (rowReductions.contains(op) &&
                             argument.getArgNumber() >= op.getNumDpsInputs()))
      varying.insert(argument);
  auto isVarying = [&](Value value) { return varying.contains(value); };
  auto isInfinite = [&](Value value) {
    std::optional<double> number;
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument && argument.getOwner() == op.getBody())
      number = getConstant(op->getOperand(argument.getArgNumber()));
    else
      number = getConstant(value);
    return number && std::isinf(*number);
  };
  // Which entry is the largest, nobody asks who reads the maximum alone.
  bool isMaximum = rowReductions.contains(op) &&
                   (!op.getBody()->getOps<arith::MaximumFOp>().empty() ||
                    !op.getBody()->getOps<arith::MaxNumFOp>().empty());
  for (Operation &inner : op.getBody()->without_terminator()) {
    if (llvm::none_of(inner.getOperands(), isVarying))
      continue;
    varying.insert(inner.getResult(0));
    bool isComparison = isa<arith::CmpFOp, arith::MaximumFOp, arith::MaxNumFOp,
                            arith::MinimumFOp, arith::MinNumFOp>(inner);
    bool isOfNaN =
        isa<arith::CmpFOp>(inner) && inner.getOperand(0) == inner.getOperand(1);
    if (isComparison && !isMaximum && !isOfNaN &&
        llvm::none_of(inner.getOperands(), isInfinite))
      return false;
    if (isa<math::AbsFOp, math::PowFOp>(inner))
      return false;
  }
  return true;
}

/// True if no operation between the products and what `site` reads makes a
/// difference between scores by their size. What is left is analytic: what
/// agrees with a formula for numbers around 0 does so everywhere.
bool Matcher::isSmooth(const Site &site) {
  SetVector<Value> reached;
  reached.insert(site.read.tensor);
  for (size_t next = 0; next != reached.size(); ++next) {
    Operation *op = reached[next].getDefiningOp();
    if (!op || !depends(reached[next]) || op == scores || products.count(op))
      continue;
    if (auto generic = dyn_cast<linalg::GenericOp>(op);
        generic && !isSmooth(generic))
      return stop(op, "compares scores");
    for (Value operand : op->getOperands())
      if (isa<RankedTensorType>(operand.getType()))
        reached.insert(operand);
  }
  return true;
}

/// What `value` is but for copies and broadcasts of it.
static Value getOrigin(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    OpOperand *input =
        generic && isPointwise(generic) && generic->getNumResults() == 1
            ? getYieldedInput(generic)
            : nullptr;
    if (input && isa<RankedTensorType>(input->get().getType()))
      value = input->get();
    else if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op))
      value = op->getOperand(0);
    else
      break;
  }
  return value;
}

namespace {
/// Random numbers for what a row is computed from.
class RandomRow {
public:
  RandomRow(unsigned seed) : generator(seed) {}

  double get(Type type) {
    if (type.isInteger(1))
      return std::bernoulli_distribution(0.7)(generator) ? 1 : 0;
    if (!isa<FloatType>(type))
      return std::uniform_int_distribution<int>(0, 7)(generator);
    return std::uniform_real_distribution<double>(-2, 2)(generator);
  }
  int64_t getPosition(int64_t extent) {
    return std::uniform_int_distribution<int64_t>(0, extent - 1)(generator);
  }

private:
  std::mt19937 generator;
};
} // namespace

static bool isClose(double x, double y) {
  if (std::isnan(x) || std::isnan(y))
    return std::isnan(x) && std::isnan(y);
  return std::fabs(x - y) <= tolerance * (1 + std::fabs(y));
}

/// True if what `site` reads are the probabilities, or the gradients of the
/// product, of random rows. Sets whether a row without anything is zero.
bool Matcher::compare(const Site &site, bool isGradient) {
  if (!isSmooth(site))
    return false;
  int64_t queries = found.extents[found.getQueryDim()];
  int64_t keys = found.extents[found.getKeyDim()];
  std::optional<bool> zeroEmpty;
  for (int64_t trial = 0; trial != numTrials; ++trial) {
    RandomRow random(trial);
    SmallVector<int64_t> point(found.extents.size(), 0);
    for (unsigned dim = 0; dim <= found.getQueryDim(); ++dim)
      point[dim] = random.getPosition(found.extents[dim]);
    SmallVector<int64_t> sampled;
    while (static_cast<int64_t>(sampled.size()) < std::min(numSamples, keys)) {
      int64_t key = random.getPosition(keys);
      if (!llvm::is_contained(sampled, key))
        sampled.push_back(key);
    }
    point[found.getQueryDim()] = random.getPosition(queries);
    auto getPlace = [&](const Labelled &tensor, int64_t key) {
      SmallVector<int64_t> place;
      for (int64_t label : tensor.labels)
        place.push_back(label < 0                    ? 0
                        : label == found.getKeyDim() ? key
                                                     : point[label]);
      return place;
    };
    auto reduced =
        [&](linalg::GenericOp op) -> std::optional<SmallVector<int64_t>> {
      SmallVector<unsigned> dims;
      op.getReductionDims(dims);
      bool isUnit = llvm::all_of(dims, [&](unsigned dim) {
        return op.getStaticLoopRanges()[dim] == 1;
      });
      if (isUnit)
        return SmallVector<int64_t>{0};
      if (rowReductions.contains(op))
        return sampled;
      return std::nullopt;
    };
    EntryValues values(
        [&](Value tensor, ArrayRef<int64_t>) -> std::optional<double> {
          return random.get(getElementTypeOrSelf(tensor.getType()));
        },
        reduced);
    // Masks and biases are random, whatever they are computed from.
    for (const AttentionMatch::Mask &mask : found.masks)
      values.setLeaf(getOrigin(mask.tensor.tensor));
    for (const Labelled &bias : found.biases)
      values.setLeaf(getOrigin(bias.tensor));
    // In the last row nothing is seen, if that is up to masks and biases.
    if (trial + 1 == numTrials) {
      for (const AttentionMatch::Mask &mask : found.masks)
        values.set(getOrigin(mask.tensor.tensor), mask.isNegated ? 1 : 0);
      for (const Labelled &bias : found.biases)
        values.set(getOrigin(bias.tensor), -INFINITY);
    }

    // x, p, and the gradient of p.
    SmallVector<double> x, p, g, live;
    Labelled product{scores->getResult(0), labels[scores->getResult(0)]};
    for (int64_t key : sampled) {
      std::optional<double> number =
          values.get(product.tensor, getPlace(product, key));
      double sum = number.value_or(NAN) * found.scale;
      for (const Labelled &bias : found.biases)
        sum += values.get(bias.tensor, getPlace(bias, key)).value_or(NAN);
      bool isLive = true;
      for (const AttentionMatch::Mask &mask : found.masks) {
        std::optional<double> bit =
            values.get(mask.tensor.tensor, getPlace(mask.tensor, key));
        isLive &= bit && (*bit != 0) != mask.isNegated;
      }
      x.push_back(isLive ? sum : *found.fill);
      live.push_back(isLive);
    }
    double largest = *llvm::max_element(x), total = 0;
    bool isNothing = largest == -INFINITY;
    for (double each : x)
      p.push_back(std::exp(each - largest));
    for (double each : p)
      total += each;
    for (double &each : p)
      each /= total;
    double mean = 0;
    if (isGradient) {
      Labelled made = getResult(found.probabilityGradient,
                                products[found.probabilityGradient]);
      for (auto [key, each] : llvm::zip_equal(sampled, p)) {
        g.push_back(values.get(made.tensor, getPlace(made, key)).value_or(NAN));
        mean += each * g.back();
      }
    }
    for (auto [number, key] : llvm::enumerate(sampled)) {
      std::optional<double> got =
          values.get(site.read.tensor, getPlace(site.read, key));
      if (!got)
        return false;
      double want = isGradient ? live[number] * found.scale * p[number] *
                                     (g[number] - mean)
                               : p[number];
      if (isNothing) {
        // Zero or NaN, but one of them always.
        bool isZero = *got == 0;
        if ((!isZero && !std::isnan(*got)) ||
            zeroEmpty.value_or(isZero) != isZero)
          return false;
        zeroEmpty = isZero;
        continue;
      }
      if (!isClose(*got, want))
        return false;
    }
  }
  if (!isGradient)
    found.zeroEmpty = zeroEmpty.value_or(false);
  return true;
}

/// Takes the product of `site`, which reads probabilities and sums over keys,
/// as the output.
bool Matcher::setOutput(const Site &site) {
  linalg::GenericOp op = site.op;
  Labels loops(op.getNumLoops(), -1);
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  for (auto [expr, label] :
       llvm::zip_equal(maps[site.operand].getResults(), site.read.labels))
    loops[cast<AffineDimExpr>(expr).getPosition()] = label;
  for (auto [loop, label] : llvm::enumerate(loops))
    if (label < 0) {
      if (llvm::is_contained(loops, found.getValueFeatureDim()))
        return stop(op, "multiplies probabilities with more than values");
      label = found.getValueFeatureDim();
      found.extents[label] = op.getStaticLoopRanges()[loop];
    }
  found.output = op;
  found.v = getOperand(op, 1 - site.operand, loops);
  found.y = getResult(op, loops);
  return true;
}

/// True if `tensor` has all batch dimensions and the two others, once each, and
/// nothing else.
static bool hasDims(const AttentionMatch &found, const Labelled &tensor,
                    int64_t row, int64_t feature) {
  SmallVector<int64_t> expected =
      llvm::to_vector(llvm::seq<int64_t>(0, found.numBatchDims));
  expected.append({row, feature});
  SmallVector<int64_t> got(tensor.labels);
  llvm::sort(got);
  return got == expected;
}

/// Takes the products of what is not the output as the gradients.
bool Matcher::setGradients(ArrayRef<Site> rows) {
  int64_t query = found.getQueryDim(), key = found.getKeyDim();
  int64_t feature = found.getFeatureDim();
  int64_t valueFeature = found.getValueFeatureDim();
  // The gradient of the probabilities is the product of dy and v.
  Labelled v = getUnpermuted(found.v);
  for (auto &[op, loops] : products) {
    auto product = cast<linalg::GenericOp>(op);
    Labels named(loops);
    for (int64_t &label : named)
      if (label < 0)
        label = valueFeature;
    for (unsigned operand : {0, 1}) {
      Labelled values = getOperand(product, operand, named);
      Labelled gradient = getOperand(product, 1 - operand, named);
      if (getUnpermuted(values) == v &&
          hasDims(found, gradient, query, valueFeature)) {
        found.probabilityGradient = product;
        loops = named;
        found.dy = gradient;
      }
    }
  }
  if (!found.probabilityGradient)
    return stop(rows.front().op,
                "reads scores, but no product of a gradient and the values is "
                "among what they are computed from");
  Labelled dy = getUnpermuted(found.dy);
  for (const Site &site : rows) {
    linalg::GenericOp op = site.op;
    bool isOfKeys = llvm::any_of(
        llvm::zip_equal(op.getIndexingMapsArray()[site.operand].getResults(),
                        site.read.labels),
        [&](auto it) {
          auto [expr, label] = it;
          return label == key && op.getIndexingMapsArray()[2].isFunctionOfDim(
                                     cast<AffineDimExpr>(expr).getPosition());
        });
    bool isProbability = compare(site, /*isGradient=*/false);
    int64_t free = isProbability ? valueFeature : feature;
    Labels loops(op.getNumLoops(), -1);
    for (auto [expr, label] :
         llvm::zip_equal(op.getIndexingMapsArray()[site.operand].getResults(),
                         site.read.labels))
      loops[cast<AffineDimExpr>(expr).getPosition()] = label;
    for (int64_t &label : loops)
      if (label < 0)
        label = free;
    Labelled other = getUnpermuted(getOperand(op, 1 - site.operand, loops));
    Labelled result = getResult(op, loops);
    if (!hasDims(found, result, isOfKeys ? key : query, free))
      return stop(op, "sums products with scores over other dimensions");
    if (isProbability && isOfKeys && other == dy && !found.valueGradient) {
      found.valueGradient = op;
      found.dv = result;
      continue;
    }
    if (isProbability || !compare(site, /*isGradient=*/true))
      return stop(op, "reads what is neither the probabilities nor the "
                      "gradient of the scores");
    if (isOfKeys && other == getUnpermuted(found.q) && !found.keyGradient) {
      found.keyGradient = op;
      found.dk = result;
    } else if (!isOfKeys && other == getUnpermuted(found.k) &&
               !found.queryGradient) {
      found.queryGradient = op;
      found.dq = result;
    } else {
      return stop(op, "multiplies the gradient of the scores with something "
                      "else than the queries or the keys");
    }
  }
  if (!found.valueGradient || !found.keyGradient || !found.queryGradient)
    return stop(rows.front().op, "is not part of a gradient of queries, keys "
                                 "and values");
  return true;
}

std::optional<AttentionMatch> Matcher::match() {
  std::optional<unsigned> keyDim = findKeyDim();
  if (!keyDim || !setDims(*keyDim) || !follow())
    return std::nullopt;
  findScore();
  // The first product that sums probabilities over keys.
  SmallVector<Site> rest;
  for (Site &site : sites) {
    AffineMap map = site.op.getIndexingMapsArray()[2];
    bool isOverKeys = llvm::any_of(
        llvm::zip_equal(
            site.op.getIndexingMapsArray()[site.operand].getResults(),
            site.read.labels),
        [&](auto it) {
          auto [expr, label] = it;
          return label == found.getKeyDim() &&
                 !map.isFunctionOfDim(cast<AffineDimExpr>(expr).getPosition());
        });
    for (auto [label, extent] :
         llvm::zip_equal(site.read.labels, getShape(site.read.tensor)))
      if (label < 0) {
        stop(site.op, "multiplies scores of one element");
        return std::nullopt;
      }
    if (!found.output && isOverKeys && compare(site, /*isGradient=*/false)) {
      if (!setOutput(site))
        return std::nullopt;
      continue;
    }
    rest.push_back(site);
  }
  if (!found.output) {
    if (!sites.empty())
      stop(sites.front().op, "reads what is no softmax of scaled, biased and "
                             "masked scores");
    return std::nullopt;
  }
  if (!hasDims(found, found.v, found.getKeyDim(), found.getValueFeatureDim()) ||
      !hasDims(found, found.y, found.getQueryDim(),
               found.getValueFeatureDim())) {
    stop(found.output, "multiplies probabilities with more than values");
    return std::nullopt;
  }
  if (!rest.empty() && !setGradients(rest))
    return std::nullopt;
  return found;
}

std::optional<AttentionMatch> bsr::matchAttention(linalg::GenericOp scores,
                                                  AttentionObstacle &obstacle) {
  if (!isProduct(scores))
    return std::nullopt;
  return Matcher(scores, obstacle).match();
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds attention, and its gradient, among products and what is between them.

#include "AttentionMatcher.h"
#include "AttentionFormulas.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/ElementWise.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// Finds the products that scores are read by: the output, and the gradients.
class Matcher {
public:
  Matcher(linalg::GenericOp product, const DenseSet<Operation *> &maximized,
          AttentionObstacle &obstacle)
      : scores(product, maximized, obstacle), formulas(scores),
        found(scores.found) {}

  std::optional<AttentionMatch> match();

private:
  using Site = AttentionScores::Site;
  using Formula = AttentionFormulas::Formula;

  bool isProbability(const Site &site);
  bool setOutput(const Site &site);
  bool setProbabilityGradient(Operation *reader);
  bool setGradients(ArrayRef<Site> rows);
  bool setBiasGradient();

  AttentionScores scores;
  AttentionFormulas formulas;
  AttentionMatch &found;
};
} // namespace

/// True if `site` reads probabilities times a factor, which is set.
bool Matcher::isProbability(const Site &site) {
  AttentionMatch::Factor before = found.factor;
  found.factor = {};
  Site peeled = site;
  do
    if (formulas.matches(peeled, Formula::Probability))
      return true;
  while (scores.peelFactor(peeled));
  found.factor = before;
  return false;
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
        return scores.stop(op,
                           "multiplies probabilities with more than values");
      label = found.getValueFeatureDim();
      found.extents[label] = op.getStaticLoopRanges()[loop];
    }
  found.output = op;
  found.v = scores.getOperand(op, 1 - site.operand, loops);
  found.y = scores.getResult(op, loops);
  return true;
}

/// True if `tensor` has batch dimensions, all unless it `isShared`, and the two
/// others, once each, and nothing else.
static bool hasDims(const AttentionMatch &found, const LabelledTensor &tensor,
                    int64_t row, int64_t feature, bool isShared = false) {
  SmallVector<int64_t> got(tensor.labels);
  llvm::sort(got);
  SmallVector<int64_t> expected;
  for (int64_t dim : llvm::seq<int64_t>(0, found.numBatchDims))
    if (!isShared || llvm::is_contained(got, dim))
      expected.push_back(dim);
  expected.append({row, feature});
  return got == expected;
}

/// Finds the product of dy and the values, the gradient of the probabilities
/// that `reader` reads scores for. Without an output it says which they are.
bool Matcher::setProbabilityGradient(Operation *reader) {
  int64_t query = found.getQueryDim(), key = found.getKeyDim();
  int64_t valueFeature = found.getValueFeatureDim();
  LabelledTensor v = found.output ? getUnpermuted(found.v) : LabelledTensor();
  for (auto &[op, loops] : scores.products) {
    auto product = cast<linalg::GenericOp>(op);
    Labels named(loops);
    for (auto [loop, label] : llvm::enumerate(named))
      if (label < 0) {
        label = valueFeature;
        if (!v)
          found.extents[label] = product.getStaticLoopRanges()[loop];
      }
    for (unsigned operand : {0, 1}) {
      LabelledTensor values = scores.getOperand(product, operand, named);
      LabelledTensor gradient = scores.getOperand(product, 1 - operand, named);
      if (v ? !(getUnpermuted(values) == v)
            : !hasDims(found, values, key, valueFeature, /*isShared=*/true))
        continue;
      if (!hasDims(found, gradient, query, valueFeature))
        continue;
      found.probabilityGradient = product;
      found.v = values;
      found.dy = gradient;
      loops = named;
    }
  }
  return found.probabilityGradient ||
         scores.stop(reader,
                     "reads scores, but no product of a gradient and the "
                     "values is among what they are computed from");
}

/// Takes what sums up gradients of scores over batch dimensions as the gradient
/// of a bias.
bool Matcher::setBiasGradient() {
  for (Site &site : scores.sums) {
    if (found.biasGradient)
      return scores.stop(site.op,
                         "sums scores over batch dimensions a second time");
    Labels loops(site.op.getNumLoops(), -1);
    for (auto [expr, label] : llvm::zip_equal(
             site.op.getIndexingMapsArray()[0].getResults(), site.read.labels))
      if (auto loop = dyn_cast<AffineDimExpr>(expr))
        loops[loop.getPosition()] = label;
    found.dbias = scores.getResult(site.op, loops);
    if (!found.probabilityGradient ||
        !formulas.matches(site, Formula::ScoreGradient))
      return scores.stop(site.op, "sums what are no gradients of scores over "
                                  "batch dimensions");
    Type element = getElementTypeOrSelf(found.dbias.tensor.getType());
    if (element != found.getSumType())
      return scores.stop(site.op, "sums gradients of scores in another type "
                                  "than that of sums over keys");
    found.biasGradient = site.op;
  }
  return true;
}

/// Takes the products of what is not the output as the gradients.
bool Matcher::setGradients(ArrayRef<Site> rows) {
  int64_t query = found.getQueryDim(), key = found.getKeyDim();
  int64_t feature = found.getFeatureDim();
  int64_t valueFeature = found.getValueFeatureDim();
  LabelledTensor dy = getUnpermuted(found.dy);
  for (const AttentionScores::Site &site : rows) {
    linalg::GenericOp op = site.op;
    bool isOfKeys = llvm::any_of(
        llvm::zip_equal(op.getIndexingMapsArray()[site.operand].getResults(),
                        site.read.labels),
        [&](auto it) {
          auto [expr, label] = it;
          return label == key && op.getIndexingMapsArray()[2].isFunctionOfDim(
                                     cast<AffineDimExpr>(expr).getPosition());
        });
    bool isProbability = formulas.matches(site, Formula::Dropped);
    int64_t free = isProbability ? valueFeature : feature;
    Labels loops(op.getNumLoops(), -1);
    for (auto [expr, label] :
         llvm::zip_equal(op.getIndexingMapsArray()[site.operand].getResults(),
                         site.read.labels))
      loops[cast<AffineDimExpr>(expr).getPosition()] = label;
    for (int64_t &label : loops)
      if (label < 0)
        label = free;
    LabelledTensor other =
        getUnpermuted(scores.getOperand(op, 1 - site.operand, loops));
    LabelledTensor result = scores.getResult(op, loops);
    if (!hasDims(found, result, isOfKeys ? key : query, free, isOfKeys))
      return scores.stop(op, "sums products with scores over other dimensions");
    if (isProbability && isOfKeys && other == dy && !found.valueGradient) {
      found.valueGradient = op;
      found.dv = result;
      continue;
    }
    if (isProbability || !formulas.matches(site, Formula::ProductGradient))
      return scores.stop(op, "reads what is neither the probabilities nor the "
                             "gradient of the scores");
    if (isOfKeys && other == getUnpermuted(found.q) && !found.keyGradient) {
      found.keyGradient = op;
      found.dk = result;
    } else if (!isOfKeys && other == getUnpermuted(found.k) &&
               !found.queryGradient) {
      found.queryGradient = op;
      found.dq = result;
    } else {
      return scores.stop(op,
                         "multiplies the gradient of the scores with something "
                         "else than the queries or the keys");
    }
  }
  if (!found.valueGradient || !found.keyGradient || !found.queryGradient)
    return scores.stop(rows.front().op,
                       "is not part of a gradient of queries, keys "
                       "and values");
  // A gradient is computed where its first product is: from the output, and
  // from the values. (A softmax over queries has its gradient's product first.)
  Operation *first = found.valueGradient;
  for (linalg::GenericOp op : {found.keyGradient, found.queryGradient})
    if (op->isBeforeInBlock(first))
      first = op;
  Operation *values = found.v.tensor.getDefiningOp();
  if (found.output ? first->isBeforeInBlock(found.output)
                   : values && !values->isBeforeInBlock(first))
    return scores.stop(first, "reads scores before there are an output and "
                              "values");
  for (unsigned dim = 0; dim != found.numBatchDims; ++dim)
    if (llvm::is_contained(found.dk.labels, dim) !=
        llvm::is_contained(found.dv.labels, dim))
      return scores.stop(found.keyGradient,
                         "sums gradients of keys over other dimensions than "
                         "those of values");
  return setBiasGradient();
}

std::optional<AttentionMatch> Matcher::match() {
  if (!scores.follow())
    return std::nullopt;
  // The first product that sums probabilities over keys.
  SmallVector<Site> rest;
  for (Site &site : scores.sites) {
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
    for (auto [label, extent] : llvm::zip_equal(
             site.read.labels,
             cast<RankedTensorType>(site.read.tensor.getType()).getShape()))
      if (label < 0) {
        scores.stop(site.op, "multiplies scores of one element");
        return std::nullopt;
      }
    if (!found.output && isOverKeys && isProbability(site)) {
      if (!setOutput(site))
        return std::nullopt;
      continue;
    }
    rest.push_back(site);
  }
  // A gradient alone: of probabilities that were computed again for it.
  if (!found.output && !llvm::any_of(rest, [&](const Site &site) {
        return isProbability(site);
      })) {
    if (!scores.sites.empty())
      scores.stop(scores.sites.front().op,
                  "reads what is no softmax of scaled, biased and "
                  "masked scores");
    return std::nullopt;
  }
  if (found.output &&
      (!hasDims(found, found.v, found.getKeyDim(), found.getValueFeatureDim(),
                /*isShared=*/true) ||
       !hasDims(found, found.y, found.getQueryDim(),
                found.getValueFeatureDim()))) {
    scores.stop(found.output, "multiplies probabilities with more than values");
    return std::nullopt;
  }
  if (rest.empty() && !scores.sums.empty())
    scores.stop(scores.sums.front().op, "sums scores over batch dimensions");
  if (rest.empty()
          ? !scores.sums.empty()
          : !setProbabilityGradient(rest.front().op) || !setGradients(rest))
    return std::nullopt;
  return found;
}

std::optional<AttentionMatch>
bsr::matchAttention(linalg::GenericOp scores,
                    const DenseSet<Operation *> &maximized,
                    AttentionObstacle &obstacle) {
  if (!isProduct(scores))
    return std::nullopt;
  return Matcher(scores, maximized, obstacle).match();
}

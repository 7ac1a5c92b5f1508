// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds attention, and its gradient, among products and what is between them.

#include "AttentionMatcher.h"
#include "AttentionFormulas.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Kernels.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// Finds the products that scores are read by: the output, and the gradients.
class Matcher {
public:
  Matcher(linalg::GenericOp product, AttentionObstacle &obstacle)
      : scores(product, obstacle), formulas(scores), found(scores.found) {}

  std::optional<AttentionMatch> match();

private:
  using Site = AttentionScores::Site;

  bool setOutput(const Site &site);
  bool setGradients(ArrayRef<Site> rows);

  AttentionScores scores;
  AttentionFormulas formulas;
  AttentionMatch &found;
};
} // namespace

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
  for (auto &[op, loops] : scores.products) {
    auto product = cast<linalg::GenericOp>(op);
    Labels named(loops);
    for (int64_t &label : named)
      if (label < 0)
        label = valueFeature;
    for (unsigned operand : {0, 1}) {
      Labelled values = scores.getOperand(product, operand, named);
      Labelled gradient = scores.getOperand(product, 1 - operand, named);
      if (getUnpermuted(values) == v &&
          hasDims(found, gradient, query, valueFeature)) {
        found.probabilityGradient = product;
        loops = named;
        found.dy = gradient;
      }
    }
  }
  if (!found.probabilityGradient)
    return scores.stop(
        rows.front().op,
        "reads scores, but no product of a gradient and the values is "
        "among what they are computed from");
  Labelled dy = getUnpermuted(found.dy);
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
    bool isProbability = formulas.isProbability(site);
    int64_t free = isProbability ? valueFeature : feature;
    Labels loops(op.getNumLoops(), -1);
    for (auto [expr, label] :
         llvm::zip_equal(op.getIndexingMapsArray()[site.operand].getResults(),
                         site.read.labels))
      loops[cast<AffineDimExpr>(expr).getPosition()] = label;
    for (int64_t &label : loops)
      if (label < 0)
        label = free;
    Labelled other =
        getUnpermuted(scores.getOperand(op, 1 - site.operand, loops));
    Labelled result = scores.getResult(op, loops);
    if (!hasDims(found, result, isOfKeys ? key : query, free))
      return scores.stop(op, "sums products with scores over other dimensions");
    if (isProbability && isOfKeys && other == dy && !found.valueGradient) {
      found.valueGradient = op;
      found.dv = result;
      continue;
    }
    if (isProbability || !formulas.isScoreGradient(site))
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
  return true;
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
    if (!found.output && isOverKeys && formulas.isProbability(site)) {
      if (!setOutput(site))
        return std::nullopt;
      continue;
    }
    rest.push_back(site);
  }
  if (!found.output) {
    if (!scores.sites.empty())
      scores.stop(scores.sites.front().op,
                  "reads what is no softmax of scaled, biased and "
                  "masked scores");
    return std::nullopt;
  }
  if (!hasDims(found, found.v, found.getKeyDim(), found.getValueFeatureDim()) ||
      !hasDims(found, found.y, found.getQueryDim(),
               found.getValueFeatureDim())) {
    scores.stop(found.output, "multiplies probabilities with more than values");
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

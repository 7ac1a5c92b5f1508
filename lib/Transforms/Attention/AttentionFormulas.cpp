// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares what a program computes between products with what the formulas of
// attention give.

#include "AttentionFormulas.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Slices.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>
#include <random>

using namespace mlir;
using namespace mlir::bsr;

/// Rows that are compared, and keys of each.
static constexpr int64_t numTrials = 8, numSamples = 5;
static constexpr double tolerance = 1e-9;

/// True if `value` is computed from products of queries and keys.
bool AttentionFormulas::depends(Value value) {
  auto [known, isNew] = dependent.try_emplace(value, false);
  if (!isNew)
    return known->second;
  Operation *op = value.getDefiningOp();
  bool result = false;
  if (op == found.scores || (op && scores.products.count(op)))
    result = true;
  else if (auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
           generic
               ? isPointwise(generic) || scores.rowReductions.contains(generic)
               : isView(op))
    result = llvm::any_of(op->getOperands(),
                          [&](Value operand) { return depends(operand); });
  return dependent[value] = result;
}

/// True if `op` is not another function of large numbers than of small ones.
static bool isAnalytic(Operation *op) {
  return isa<
      arith::AddFOp, arith::DivFOp, arith::ExtFOp, arith::MulFOp, arith::NegFOp,
      arith::SelectOp, arith::SubFOp, arith::TruncFOp, BarrierOp, math::CosOp,
      math::CoshOp, math::ErfOp, math::ErfcOp, math::Exp2Op, math::ExpM1Op,
      math::ExpOp, math::FPowIOp, math::FmaOp, math::IsFiniteOp, math::IsInfOp,
      math::IsNaNOp, math::Log10Op, math::Log1pOp, math::Log2Op, math::LogOp,
      math::RsqrtOp, math::SinOp, math::SinhOp, math::SqrtOp, math::TanhOp>(op);
}

/// True if `op` compares nothing that depends on scores, but with infinities
/// and for NaN, or to find the maximum of a row.
bool AttentionFormulas::isSmooth(linalg::GenericOp op) {
  DenseSet<Value> varying;
  for (auto [operand, argument] :
       llvm::zip_equal(op->getOperands(), op.getBody()->getArguments()))
    if (depends(operand) || (scores.rowReductions.contains(op) &&
                             argument.getArgNumber() >= op.getNumDpsInputs()))
      varying.insert(argument);
  auto isVarying = [&](Value value) { return varying.contains(value); };
  auto isVaryingFloat = [&](Value value) {
    return isVarying(value) && isa<FloatType>(value.getType());
  };
  auto isInfinite = [&](Value value) {
    std::optional<double> number;
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument && argument.getOwner() == op.getBody())
      number = getConstant(op->getOperand(argument.getArgNumber()));
    else
      number = getConstant(value);
    return number && std::isinf(*number);
  };
  // A maximum that is read as a value does not depend on which entry attains
  // it.
  bool isMaximum = scores.rowReductions.contains(op) &&
                   (!op.getBody()->getOps<arith::MaximumFOp>().empty() ||
                    !op.getBody()->getOps<arith::MaxNumFOp>().empty());
  for (Operation &inner : op.getBody()->without_terminator()) {
    if (llvm::none_of(inner.getOperands(), isVarying))
      continue;
    varying.insert(inner.result_begin(), inner.result_end());
    bool isComparison = isa<arith::CmpFOp, arith::MaximumFOp, arith::MaxNumFOp,
                            arith::MinimumFOp, arith::MinNumFOp>(inner);
    bool isOfNaN =
        isa<arith::CmpFOp>(inner) && inner.getOperand(0) == inner.getOperand(1);
    if (isComparison && !isMaximum && !isOfNaN &&
        llvm::none_of(inner.getOperands(), isInfinite))
      return false;
    if (!isComparison && !isAnalytic(&inner) &&
        llvm::any_of(inner.getOperands(), isVaryingFloat))
      return false;
  }
  return true;
}

/// True if no operation between the products and what `site` reads makes a
/// difference between scores by their size. What is left is analytic: what
/// agrees with a formula for numbers around 0 does so everywhere.
bool AttentionFormulas::isSmooth(const AttentionScores::Site &site) {
  SetVector<Value> reached;
  reached.insert(site.read.tensor);
  for (size_t next = 0; next != reached.size(); ++next) {
    Operation *op = reached[next].getDefiningOp();
    if (!op || !depends(reached[next]) || op == found.scores ||
        scores.products.count(op))
      continue;
    if (auto generic = dyn_cast<linalg::GenericOp>(op);
        generic && !isSmooth(generic))
      return scores.stop(op, "compares scores");
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

bool AttentionFormulas::matches(const AttentionScores::Site &site,
                                Formula formula) {
  bool isGradient =
      formula == Formula::ProductGradient || formula == Formula::ScoreGradient;
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
    auto getPlace = [&](const LabelledTensor &tensor, int64_t key) {
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
      if (scores.rowReductions.contains(op))
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
    for (const LabelledTensor &bias : found.biases)
      values.setLeaf(getOrigin(bias.tensor));
    for (const AttentionMatch::Mask &mask : found.factor.masks)
      values.setLeaf(getOrigin(mask.tensor.tensor));
    for (const LabelledTensor &tensor : found.factor.tensors)
      values.setLeaf(getOrigin(tensor.tensor));
    // In the last row nothing is seen, if that is up to masks and biases.
    if (trial + 1 == numTrials) {
      for (const AttentionMatch::Mask &mask : found.masks)
        values.set(getOrigin(mask.tensor.tensor), mask.isNegated ? 1 : 0);
      for (const LabelledTensor &bias : found.biases)
        values.set(getOrigin(bias.tensor), -INFINITY);
    }

    // x, p, and the gradient of p.
    SmallVector<double> x, p, g, live, factors;
    LabelledTensor product{found.scores->getResult(0),
                           scores.labels[found.scores->getResult(0)]};
    for (int64_t key : sampled) {
      std::optional<double> number =
          values.get(product.tensor, getPlace(product, key));
      double sum = number.value_or(NAN) * found.scale;
      for (const LabelledTensor &bias : found.biases)
        sum += values.get(bias.tensor, getPlace(bias, key)).value_or(NAN);
      auto areTrue = [&](ArrayRef<AttentionMatch::Mask> masks) {
        return llvm::all_of(masks, [&](const AttentionMatch::Mask &mask) {
          std::optional<double> bit =
              values.get(mask.tensor.tensor, getPlace(mask.tensor, key));
          return bit && (*bit != 0) != mask.isNegated;
        });
      };
      bool isLive = areTrue(found.masks);
      double factor = areTrue(found.factor.masks) ? found.factor.number : 0;
      for (const LabelledTensor &tensor : found.factor.tensors)
        factor *=
            values.get(tensor.tensor, getPlace(tensor, key)).value_or(NAN);
      factors.push_back(factor);
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
      LabelledTensor made =
          scores.getResult(found.probabilityGradient,
                           scores.products[found.probabilityGradient]);
      for (auto [key, each, factor] : llvm::zip_equal(sampled, p, factors)) {
        g.push_back(factor *
                    values.get(made.tensor, getPlace(made, key)).value_or(NAN));
        mean += each * g.back();
      }
    }
    for (auto [number, key] : llvm::enumerate(sampled)) {
      std::optional<double> got =
          values.get(site.read.tensor, getPlace(site.read, key));
      if (!got)
        return false;
      double want = p[number];
      if (isGradient)
        want *= live[number] * (g[number] - mean);
      if (formula == Formula::ProductGradient)
        want *= found.scale;
      if (formula == Formula::Dropped)
        want *= factors[number];
      if (isNothing) {
        // Zero or NaN, but one of them always.
        bool isZero = *got == 0;
        // What is dropped of it is 0.
        if (isZero && formula == Formula::Dropped && !found.factor.isOne())
          continue;
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
  if (formula == Formula::Probability)
    found.zeroEmpty = zeroEmpty.value_or(false);
  return true;
}

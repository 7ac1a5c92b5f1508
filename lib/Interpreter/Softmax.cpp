// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention and its gradient by their formulas.

#include "Points.h"
#include "bsr/Interpreter/Interpreter.h"

#include "bsr/Dialect/Attention.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::interpreter;

namespace {
/// A tensor of an attention: read or made, at points of all its dimensions.
class Access {
public:
  explicit Access(const AttentionTensor &tensor, const Array *read = nullptr)
      : map(*getLinearMap(tensor.map, getShape(tensor.tensor.getType()))),
        read(read) {
    if (!read) {
      made = makeUnspecified(tensor.tensor.getType());
      made.elements.assign(made.elements.size(), fromReal(0));
    }
  }

  Number get(const std::vector<int64_t> &point) const {
    return (read ? *read : made).elements[size_t(map.at(point))];
  }
  double &at(const std::vector<int64_t> &point) {
    return made.elements[size_t(map.at(point))].real;
  }
  Array take() { return std::move(made); }

private:
  LinearMap map;
  const Array *read;
  Array made;
};

/// Computes the probabilities of a row of queries after the other.
class Rows {
public:
  Rows(const Attention &attention, const Interpreter &in)
      : attention(attention), in(in), q(attention.q, &array(attention.q)),
        k(attention.k, &array(attention.k)) {
    if (attention.bias)
      bias.emplace(attention.bias, &array(attention.bias));
    if (attention.mask)
      mask.emplace(attention.mask, &array(attention.mask));
  }

  const Array &array(const AttentionTensor &tensor) const {
    return in.getArray(tensor.tensor);
  }

  bool isMasked(const std::vector<int64_t> &point) const {
    return mask && !mask->get(point).integer;
  }

  /// The maximum and the logarithm of the sum of the row at `point`, and the
  /// probability of each key.
  std::vector<double> getProbabilities(std::vector<int64_t> point,
                                       double &maximum, double &logSum) const {
    int64_t keys = attention.getKeys();
    std::vector<double> row(static_cast<size_t>(keys), -INFINITY);
    std::vector<bool> isThere(row.size(), true);
    maximum = -INFINITY;
    for (int64_t j = 0; j < keys; ++j) {
      point[attention.getKeyDim()] = j;
      isThere[size_t(j)] = isStored(point);
      if (!isThere[size_t(j)])
        continue;
      double &x = row[size_t(j)] = getScore(point);
      maximum = std::isnan(x) || x > maximum ? x : maximum;
    }
    double sum = 0;
    for (size_t j = 0; j < row.size(); ++j)
      sum += isThere[j] ? std::exp(row[j] - maximum) : 0;
    bool isEmpty = maximum == -INFINITY;
    logSum = std::log(sum);
    for (size_t j = 0; j < row.size(); ++j)
      row[j] = isEmpty      ? (attention.zeroEmpty ? 0 : NAN)
               : isThere[j] ? std::exp(row[j] - maximum) / sum
                            : 0;
    return row;
  }

private:
  bool isStored(const std::vector<int64_t> &point) const {
    if (!attention.pattern)
      return true;
    const Blocks &pattern = in.getPattern(attention.pattern);
    return pattern.getSlot(
               point[attention.getQueryDim()] / pattern.type.getBlockRows(),
               point[attention.getKeyDim()] / pattern.type.getBlockCols()) !=
           Blocks::absent;
  }

  double getScore(std::vector<int64_t> &point) const {
    if (isMasked(point))
      return attention.fill;
    double product = 0;
    for (int64_t d = 0; d < attention.getFeatures(); ++d) {
      point[attention.getFeatureDim()] = d;
      product += q.get(point).real * k.get(point).real;
    }
    return attention.scale * product + (bias ? bias->get(point).real : 0);
  }

  const Attention &attention;
  const Interpreter &in;
  Access q, k;
  std::optional<Access> bias, mask;
};
} // namespace

/// Calls `run` with the first point of each row of queries.
template <typename Run>
static void forEachRow(const Attention &attention, Run run) {
  std::vector<int64_t> extents(attention.getBatch());
  extents.push_back(attention.getQueries());
  forEachPoint(extents, [&](std::vector<int64_t> point) {
    point.resize(attention.extents.size(), 0);
    run(point);
  });
}

static void runForward(AttentionOp op, Interpreter &in) {
  Attention attention(op);
  Rows rows(attention, in);
  Access v(attention.v, &rows.array(attention.v)), y(attention.y);
  Array lse = makeUnspecified(op.getLse().getType());
  size_t row = 0, numRows = lse.elements.size() / 2;
  forEachRow(attention, [&](std::vector<int64_t> point) {
    std::vector<double> p = rows.getProbabilities(
        point, lse.elements[row].real, lse.elements[numRows + row].real);
    ++row;
    for (int64_t j = 0; j < attention.getKeys(); ++j)
      for (int64_t e = 0; e < attention.getValueFeatures(); ++e) {
        point[attention.getKeyDim()] = j;
        point[attention.getValueFeatureDim()] = e;
        // What has no probability is not read.
        if (p[size_t(j)] != 0)
          y.at(point) += p[size_t(j)] * v.get(point).real;
      }
  });
  in.set(op.getY(), y.take());
  in.set(op.getLse(), std::move(lse));
}

static void runGradient(AttentionGradOp op, Interpreter &in) {
  Attention attention(op);
  Rows rows(attention, in);
  auto read = [&](const AttentionTensor &tensor) {
    return Access(tensor, &rows.array(tensor));
  };
  Access q = read(attention.q), k = read(attention.k), v = read(attention.v);
  Access y = read(attention.y), dy = read(attention.dy);
  Access dq(attention.dq), dk(attention.dk), dv(attention.dv);
  forEachRow(attention, [&](std::vector<int64_t> point) {
    double maximum, logSum;
    std::vector<double> p = rows.getProbabilities(point, maximum, logSum);
    auto sumOver = [&](const Access &a, const Access &b) {
      double sum = 0;
      for (int64_t e = 0; e < attention.getValueFeatures(); ++e) {
        point[attention.getValueFeatureDim()] = e;
        sum += a.get(point).real * b.get(point).real;
      }
      return sum;
    };
    double shared = sumOver(dy, y);
    for (int64_t j = 0; j < attention.getKeys(); ++j) {
      if (p[size_t(j)] == 0)
        continue;
      point[attention.getKeyDim()] = j;
      for (int64_t e = 0; e < attention.getValueFeatures(); ++e) {
        point[attention.getValueFeatureDim()] = e;
        dv.at(point) += p[size_t(j)] * dy.get(point).real;
      }
      if (rows.isMasked(point))
        continue;
      double g = p[size_t(j)] * (sumOver(dy, v) - shared) * attention.scale;
      for (int64_t d = 0; d < attention.getFeatures(); ++d) {
        point[attention.getFeatureDim()] = d;
        dq.at(point) += g * k.get(point).real;
        dk.at(point) += g * q.get(point).real;
      }
    }
  });
  in.set(op.getDq(), dq.take());
  in.set(op.getDk(), dk.take());
  in.set(op.getDv(), dv.take());
}

std::optional<LogicalResult> interpreter::interpretAttention(Operation *op,
                                                             Interpreter &in) {
  if (auto forward = dyn_cast<AttentionOp>(op))
    return runForward(forward, in), success();
  if (auto gradient = dyn_cast<AttentionGradOp>(op))
    return runGradient(gradient, in), success();
  return std::nullopt;
}

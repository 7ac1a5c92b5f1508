// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialect's operations by their formulas.

#include "bsr/Interpreter/Interpreter.h"

#include "bsr/Dialect/Groups.h"
#include "bsr/Dialect/Rows.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::interpreter;

/// Activations: features of all points before and after their dimension.
namespace {
struct Activations {
  Activations(const Array &array, int64_t featureDim) : array(array) {
    for (auto [i, extent] : llvm::enumerate(array.shape))
      (int64_t(i) < featureDim    ? outer
       : int64_t(i) == featureDim ? features
                                  : inner) *= extent;
  }

  int64_t getTokens() const { return outer * inner; }
  /// Where feature `feature` of token `token` lies.
  size_t place(int64_t token, int64_t feature) const {
    return size_t((token / inner * features + feature) * inner + token % inner);
  }
  double at(int64_t token, int64_t feature) const {
    return array.elements[place(token, feature)].real;
  }

  const Array &array;
  int64_t outer = 1, features = 1, inner = 1;
};
} // namespace

/// Calls `run(row, col, place)` with each stored entry of a matrix and its
/// place in the values.
template <typename Run>
static void forEachEntry(const Blocks &pattern, Run run) {
  PatternType type = pattern.type;
  int64_t height = type.getBlockRows(), width = type.getBlockCols();
  for (int64_t row = 0; row < type.getRows(); ++row)
    for (int64_t col = 0; col < type.getCols(); ++col) {
      int64_t slot = pattern.getSlot(row / height, col / width);
      if (slot != Blocks::absent)
        run(row, col,
            size_t((slot * height + row % height) * width + col % width));
    }
}

/// The product of the `number` leading dimensions of `array`.
static int64_t countPoints(const Array &array, int64_t number) {
  int64_t points = 1;
  for (int64_t extent : llvm::ArrayRef(array.shape).take_front(number))
    points *= extent;
  return points;
}

/// How many entries of the matrix are not stored.
static int64_t countAbsent(const Blocks &pattern) {
  return llvm::count(pattern.slots, Blocks::absent) *
         pattern.type.getBlockRows() * pattern.type.getBlockCols();
}

static Blocks makePattern(ConstantPatternOp op) {
  PatternType type = op.getPattern().getType();
  Blocks pattern = {type, {}};
  pattern.slots.assign(size_t(type.getGridRows() * type.getGridCols()),
                       Blocks::absent);
  for (int64_t row = 0; row < type.getGridRows(); ++row)
    for (int32_t k = op.getRowPtr()[row]; k < op.getRowPtr()[row + 1]; ++k)
      pattern.slots[size_t(row * type.getGridCols() + op.getColIdx()[k])] = k;
  return pattern;
}

static void runIndices(IndicesOp op, Interpreter &in) {
  const Blocks &pattern = in.getPattern(op.getPattern());
  bool isTransposed = op.getTranspose();
  int64_t rows = pattern.type.getGridRows(), cols = pattern.type.getGridCols();
  Array ptr = makeUnspecified(op.getPtr().getType());
  Array idx = makeUnspecified(op.getIdx().getType());
  Array slots = makeUnspecified(op.getSlot().getType());
  int64_t next = 0;
  for (int64_t line = 0; line < (isTransposed ? cols : rows); ++line) {
    ptr.elements[size_t(line)].integer = next;
    for (int64_t k = 0; k < (isTransposed ? rows : cols); ++k) {
      int64_t slot =
          isTransposed ? pattern.getSlot(k, line) : pattern.getSlot(line, k);
      if (slot == Blocks::absent)
        continue;
      idx.elements[size_t(next)].integer = k;
      slots.elements[size_t(next++)].integer = slot;
    }
  }
  ptr.elements.back().integer = next;
  in.set(op.getPtr(), std::move(ptr));
  in.set(op.getIdx(), std::move(idx));
  in.set(op.getSlot(), std::move(slots));
}

static Array runLive(LiveOp op, Interpreter &in) {
  const Blocks &pattern = in.getPattern(op.getPattern());
  Array live = makeUnspecified(op.getType());
  live.elements.assign(live.elements.size(), fromInteger(0));
  for (int64_t slot : pattern.slots)
    if (slot != Blocks::absent)
      live.elements[size_t(slot)].integer = 1;
  return live;
}

/// Where entry (row, col) lies in the matrix, or in its transposed one.
static size_t getDensePlace(PatternType type, bool isTransposed, int64_t row,
                            int64_t col) {
  return size_t(isTransposed ? col * type.getRows() + row
                             : row * type.getCols() + col);
}

static Array runToDense(ToDenseOp op, Interpreter &in) {
  const Blocks &pattern = in.getPattern(op.getPattern());
  const Array &values = in.getArray(op.getValues());
  Array dense = makeUnspecified(op.getType());
  Number background = fromInteger(0); // 0.0, too
  if (op.getBackground())
    background = in.getArray(op.getBackground()).elements[0];
  dense.elements.assign(dense.elements.size(), background);
  forEachEntry(pattern, [&](int64_t row, int64_t col, size_t place) {
    dense.elements[getDensePlace(pattern.type, op.getTranspose(), row, col)] =
        values.elements[place];
  });
  return dense;
}

static Array runSample(SampleOp op, Interpreter &in) {
  const Blocks &pattern = in.getPattern(op.getPattern());
  const Array &dense = in.getArray(op.getDense());
  Array values = makeUnspecified(op.getType());
  forEachEntry(pattern, [&](int64_t row, int64_t col, size_t place) {
    values.elements[place] =
        dense
            .elements[getDensePlace(pattern.type, op.getTranspose(), row, col)];
  });
  return values;
}

static Array runSampleVec(SampleVecOp op, Interpreter &in) {
  const Blocks &pattern = in.getPattern(op.getPattern());
  const Array &vec = in.getArray(op.getVec());
  Array values = makeUnspecified(op.getType());
  bool isOfRows = op.getDim() == 0;
  int64_t height = pattern.type.getBlockRows();
  int64_t width = pattern.type.getBlockCols();
  int64_t kept = isOfRows ? height : width, length = vec.shape.back();
  for (int64_t point = 0; point < countPoints(vec, op.getNumBatchDims());
       ++point)
    forEachEntry(pattern, [&](int64_t row, int64_t col, size_t place) {
      int64_t line = isOfRows ? row : col;
      int64_t slot =
          int64_t(place) / (height * width) + point * pattern.type.getSlots();
      values.elements[size_t(slot * kept + line % kept)] =
          vec.elements[size_t(point * length + line)];
    });
  return values;
}

static Array runReduceVec(ReduceVecOp op, Interpreter &in) {
  const Blocks &pattern = in.getPattern(op.getPattern());
  const Array &values = in.getArray(op.getValues());
  bool isOfRows = op.getDim() == 0;
  Array sums = makeUnspecified(op.getType());
  sums.elements.assign(sums.elements.size(),
                       fromReal(op.getMax() ? -INFINITY : 0));
  std::vector<int64_t> absent(sums.elements.size(),
                              isOfRows ? pattern.type.getCols()
                                       : pattern.type.getRows());
  int64_t points = countPoints(values, op.getNumBatchDims());
  size_t size = values.elements.size() / size_t(points);
  for (int64_t point = 0; point < points; ++point)
    forEachEntry(pattern, [&](int64_t row, int64_t col, size_t place) {
      size_t kept = size_t(point * sums.shape.back() + (isOfRows ? row : col));
      double value = values.elements[size_t(point) * size + place].real;
      double &sum = sums.elements[kept].real;
      if (!op.getMax())
        sum += value;
      else if (std::isnan(value) || value > sum)
        sum = value;
      --absent[kept];
    });
  if (op.getBackground())
    for (auto [sum, count] : llvm::zip_equal(sums.elements, absent))
      if (count)
        sum.real +=
            double(count) * in.getArray(op.getBackground()).elements[0].real;
  return sums;
}

static Array runSpMM(SpMMOp op, Interpreter &in) {
  const Blocks &pattern = in.getPattern(op.getPattern());
  const Array &values = in.getArray(op.getValues());
  Activations x(in.getArray(op.getX()), op.getFeatureDim());
  Array product = makeUnspecified(op.getType());
  Activations y(product, op.getFeatureDim());
  for (int64_t token = 0; token < y.getTokens(); ++token)
    for (int64_t feature = 0; feature < y.features; ++feature)
      product.elements[y.place(token, feature)].real =
          op.getBias()
              ? in.getArray(op.getBias()).elements[size_t(feature)].real
              : 0;
  // The tokens of a point of the batch lie side by side, and so do its values.
  int64_t points = countPoints(values, op.getNumBatchDims());
  int64_t tokens = x.getTokens() / points;
  size_t size = values.elements.size() / size_t(points);
  forEachEntry(pattern, [&](int64_t row, int64_t col, size_t place) {
    int64_t from = op.getTranspose() ? col : row;
    int64_t to = op.getTranspose() ? row : col;
    for (int64_t token = 0; token < x.getTokens(); ++token)
      product.elements[y.place(token, to)].real +=
          x.at(token, from) *
          values.elements[size_t(token / tokens) * size + place].real;
  });
  return product;
}

/// `sum_t a[t, row] b[t, col]`, of tokens from `first` to `end`.
static double sumOverTokens(const Activations &a, const Activations &b,
                            int64_t row, int64_t col, int64_t first,
                            int64_t end) {
  double sum = 0;
  for (int64_t token = first; token < end; ++token)
    sum += a.at(token, row) * b.at(token, col);
  return sum;
}

static Array runSDDMM(SDDMMOp op, Interpreter &in) {
  const Blocks &pattern = in.getPattern(op.getPattern());
  Activations a(in.getArray(op.getA()), op.getFeatureDim());
  Activations b(in.getArray(op.getB()), op.getFeatureDim());
  Array values = makeUnspecified(op.getType());
  int64_t points = countPoints(values, op.getNumBatchDims());
  int64_t tokens = a.getTokens() / points;
  size_t size = values.elements.size() / size_t(points);
  for (int64_t point = 0; point < points; ++point)
    forEachEntry(pattern, [&](int64_t row, int64_t col, size_t place) {
      values.elements[size_t(point) * size + place].real =
          sumOverTokens(a, b, row, col, point * tokens, (point + 1) * tokens);
    });
  return values;
}

/// Norms of the blocks of a matrix whose entries `entry(row, col)` gives.
template <typename Op, typename Entry>
static Array getScores(Op op, int64_t rows, int64_t cols, Entry entry) {
  Array scores = makeUnspecified(op.getType());
  scores.elements.assign(scores.elements.size(), fromReal(0));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = 0; col < cols; ++col) {
      double size = std::fabs(entry(row, col));
      double &score =
          scores
              .elements[size_t(row / op.getBlockRows() * scores.shape[1] +
                               col / op.getBlockCols())]
              .real;
      if (op.getNorm() == Norm::LInf)
        score = std::isnan(size) || size > score ? size : score;
      else
        score += op.getNorm() == Norm::L2 ? size * size : size;
    }
  if (op.getNorm() == Norm::L2)
    for (Number &score : scores.elements)
      score.real = std::sqrt(score.real);
  return scores;
}

static Array runBlockScores(BlockScoresOp op, Interpreter &in) {
  Activations a(in.getArray(op.getA()), op.getFeatureDim());
  Activations b(in.getArray(op.getB()), op.getFeatureDim());
  return getScores(op, a.features, b.features, [&](int64_t row, int64_t col) {
    return sumOverTokens(a, b, row, col, 0, a.getTokens());
  });
}

static Array runScatterAdd(ScatterAddOp op, Interpreter &in) {
  const Array &indices = in.getArray(op.getIndices());
  Activations updates(in.getArray(op.getUpdates()), op.getFeatureDim());
  Array rows = makeUnspecified(op.getType());
  rows.elements.assign(rows.elements.size(), fromReal(0));
  for (auto [token, index] : llvm::enumerate(indices.elements))
    if (index.integer >= 0 && index.integer < rows.shape[0])
      for (int64_t feature = 0; feature < updates.features; ++feature)
        rows.elements[size_t(index.integer * rows.shape[1] + feature)].real +=
            updates.at(int64_t(token), feature);
  return rows;
}

static Array runGatherRows(GatherRowsOp op, Interpreter &in) {
  const Blocks &pattern = in.getPattern(op.getPattern());
  const Array &values = in.getArray(op.getValues());
  const Array &indices = in.getArray(op.getIndices());
  Array rows = makeUnspecified(op.getType());
  rows.elements.assign(rows.elements.size(), fromReal(0));
  Activations places(rows, op.getFeatureDim());
  forEachEntry(pattern, [&](int64_t row, int64_t col, size_t place) {
    auto [line, feature] =
        op.getTranspose() ? std::pair(col, row) : std::pair(row, col);
    for (auto [token, index] : llvm::enumerate(indices.elements))
      if (index.integer == line)
        rows.elements[places.place(int64_t(token), feature)] =
            values.elements[place];
  });
  return rows;
}

/// Entry (row, col) of the sum of rows that an operation scatters.
template <typename Op>
static auto getSumOfRows(Op op, const Array &indices,
                         const Activations &updates) {
  return [&indices, &updates, isTransposed = op.getTranspose()](int64_t row,
                                                                int64_t col) {
    auto [line, feature] =
        isTransposed ? std::pair(col, row) : std::pair(row, col);
    double sum = 0;
    for (auto [token, index] : llvm::enumerate(indices.elements))
      if (index.integer == line)
        sum += updates.at(int64_t(token), feature);
    return sum;
  };
}

static Array runScatterRows(ScatterRowsOp op, Interpreter &in) {
  Activations updates(in.getArray(op.getUpdates()), op.getFeatureDim());
  auto entry = getSumOfRows(op, in.getArray(op.getIndices()), updates);
  Array values = makeUnspecified(op.getType());
  forEachEntry(in.getPattern(op.getPattern()),
               [&](int64_t row, int64_t col, size_t place) {
                 values.elements[place] = fromReal(entry(row, col));
               });
  return values;
}

static Array runScoreRows(ScoreRowsOp op, Interpreter &in) {
  Activations updates(in.getArray(op.getUpdates()), op.getFeatureDim());
  RankedTensorType scores = op.getScores().getType();
  return getScores(op, scores.getDimSize(0) * op.getBlockRows(),
                   scores.getDimSize(1) * op.getBlockCols(),
                   getSumOfRows(op, in.getArray(op.getIndices()), updates));
}

/// Calls `run(row, group)` with each row whose group is one of `numGroups`.
template <typename Run>
static void forEachRow(const Array &groups, int64_t numGroups, Run run) {
  for (auto [row, group] : llvm::enumerate(groups.elements))
    if (group.integer >= 0 && group.integer < numGroups)
      run(int64_t(row), group.integer);
}

static Array runGroupedMatmul(GroupedMatmulOp op, Interpreter &in) {
  const Array &x = in.getArray(op.getX()), &w = in.getArray(op.getW());
  Array y = makeUnspecified(op.getType());
  y.elements.assign(y.elements.size(), fromReal(0));
  int64_t features = x.shape[1], cols = y.shape[1];
  auto place = [&](int64_t group, int64_t feature, int64_t col) {
    return op.getTranspose() ? (group * cols + col) * features + feature
                             : (group * features + feature) * cols + col;
  };
  forEachRow(in.getArray(op.getGroups()), w.shape[0],
             [&](int64_t row, int64_t group) {
               for (int64_t col = 0; col < cols; ++col)
                 for (int64_t feature = 0; feature < features; ++feature)
                   y.elements[size_t(row * cols + col)].real +=
                       x.elements[size_t(row * features + feature)].real *
                       w.elements[size_t(place(group, feature, col))].real;
             });
  return y;
}

static Array runGroupedOuter(GroupedOuterOp op, Interpreter &in) {
  const Array &a = in.getArray(op.getA()), &b = in.getArray(op.getB());
  Array w = makeUnspecified(op.getType());
  w.elements.assign(w.elements.size(), fromReal(0));
  int64_t rows = w.shape[1], cols = w.shape[2];
  forEachRow(in.getArray(op.getGroups()), w.shape[0],
             [&](int64_t token, int64_t group) {
               for (int64_t row = 0; row < rows; ++row)
                 for (int64_t col = 0; col < cols; ++col)
                   w.elements[size_t((group * rows + row) * cols + col)].real +=
                       a.elements[size_t(token * rows + row)].real *
                       b.elements[size_t(token * cols + col)].real;
             });
  return w;
}

std::optional<LogicalResult> interpreter::interpretBlocks(Operation *op,
                                                          Interpreter &in) {
  using Done = std::optional<LogicalResult>;
  auto compute = [&](auto run) {
    return [&in, run](auto op) -> Done {
      in.set(op->getResult(0), run(op, in));
      return success();
    };
  };
  return llvm::TypeSwitch<Operation *, Done>(op)
      .Case([&](ConstantPatternOp op) -> Done {
        in.set(op, makePattern(op));
        return success();
      })
      .Case([&](IndicesOp op) -> Done {
        if (!isa<RankedTensorType>(op.getPtr().getType()))
          return std::nullopt;
        runIndices(op, in);
        return success();
      })
      .Case([&](NumAbsentOp op) -> Done {
        Array count = makeUnspecified(op.getType());
        count.elements[0].real =
            double(countAbsent(in.getPattern(op.getPattern())));
        in.set(op, std::move(count));
        return success();
      })
      .Case([&](AllReduceOp op) -> Done {
        // The mean over one process.
        if (!op.getResult())
          return std::nullopt;
        in.set(op.getResult(), in.get(op.getData()));
        return success();
      })
      .Case<LiveOp>(compute(runLive))
      .Case<ToDenseOp>(compute(runToDense))
      .Case<SampleOp>(compute(runSample))
      .Case<SampleVecOp>(compute(runSampleVec))
      .Case<ReduceVecOp>(compute(runReduceVec))
      .Case<SpMMOp>(compute(runSpMM))
      .Case<SDDMMOp>(compute(runSDDMM))
      .Case<BlockScoresOp>(compute(runBlockScores))
      .Case<ScatterAddOp>(compute(runScatterAdd))
      .Case<GatherRowsOp>(compute(runGatherRows))
      .Case<ScatterRowsOp>(compute(runScatterRows))
      .Case<ScoreRowsOp>(compute(runScoreRows))
      .Case<GroupedMatmulOp>(compute(runGroupedMatmul))
      .Case<GroupedOuterOp>(compute(runGroupedOuter))
      .Default(Done());
}

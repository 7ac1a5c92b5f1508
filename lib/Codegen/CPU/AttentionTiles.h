// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the kernels of attention and of its gradient share: tensors by rows and
// lanes, and products of small tiles.

#ifndef BSR_CODEGEN_CPU_ATTENTIONTILES_H
#define BSR_CODEGEN_CPU_ATTENTIONTILES_H

#include "bsr/Codegen/CPU/Emitter.h"
#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Dialect/Attention.h"

namespace mlir::bsr::cpu {

/// A point of an attention: positions along the batch dimensions, a query, a
/// key and a feature, of keys or of values.
struct AttentionPoint {
  ArrayRef<Index> batch;
  Index query, key;
  Index feature = Index::constant(0);

  AttentionPoint with(Index other) const { return {batch, query, key, other}; }
};

/// Lanes that lie side by side from `first` on: `count` of them, and as many
/// without a use that `width` are there, whole vectors.
struct LaneRun {
  Index first;
  int64_t count, width;
};

/// Memory with rows of lanes: behind the position `outer`.
struct LaneRows {
  Value memory;
  SmallVector<Index> outer;
};

/// Rows of features, in whole vectors: in a tensor of an attention, along
/// dimension `rowDim` from `first` on, or where they were packed.
struct FeatureRows {
  /// Null if they were packed.
  const AttentionTensor *tensor;
  AttentionPoint at;
  unsigned rowDim, featureDim;
  Index first;
  LaneRows packed;
};

/// Reads and writes the tensors of an attention, and multiplies tiles.
class AttentionTiles {
public:
  AttentionTiles(Emitter &e, const Attention &attention,
                 const DenseMap<Value, Value> &outputs,
                 const PatternViews &patterns)
      : e(e), attention(attention), outputs(outputs), patterns(patterns),
        sumType(getElementTypeOrSelf(attention.lse.getType())) {}

  /// `count` lanes in whole vectors: a power of two below one vector.
  int64_t getWidth(int64_t count) const;
  /// The most rows of a register tile that is `width` lanes wide.
  int64_t getMaxRows(int64_t width) const;
  Value constant(double value);
  /// True if elements along `dim` lie side by side in `tensor`.
  bool isAlong(const AttentionTensor &tensor, unsigned dim) const;
  /// `features` in whole vectors.
  int64_t getFeatureWidth(int64_t features) const {
    return llvm::alignTo(features, e.target.lanes);
  }
  /// The lanes of features that a register tile has: vectors that divide those
  /// of a row.
  int64_t getFeatureLanes(int64_t features) const;

  /// The power of `x`, of numbers that are 0 or less: negative infinity has
  /// exactly 0, 0 exactly 1, and what is less than -88 something below 2e-38.
  Value exponentiate(Value x);

  /// The element of `tensor` at a point, as a number in the type of sums.
  Value readNumber(const AttentionTensor &tensor, AttentionPoint at);
  /// The lanes of `tensor` along dimension `dim` from a point on; those that
  /// without a use are 0. A number where the tensor has no such dimension.
  /// Floats are in the type of sums.
  Value readLanes(const AttentionTensor &tensor, AttentionPoint at,
                  unsigned dim, LaneRun run);
  /// Writes the lanes that are used, in the type of the tensor.
  void storeLanes(Value value, const AttentionTensor &tensor, AttentionPoint at,
                  unsigned dim, LaneRun run);

  /// Memory of a work item for `rows` rows of `width` lanes, in the type of
  /// sums.
  LaneRows allocate(int64_t rows, int64_t width) {
    return {e.allocate({rows, width}, sumType), {}};
  }
  /// `width` lanes of a row, from lane `lane` on.
  Value loadRow(const LaneRows &rows, Index row, int64_t width,
                Index lane = Index::constant(0));
  void storeRow(Value value, const LaneRows &rows, Index row,
                Index lane = Index::constant(0));
  /// Makes `count` rows of `width` lanes 0, or multiplies each with a number
  /// of its own, a lane of the first row of `factors`.
  void clear(const LaneRows &rows, int64_t count, int64_t width);
  void scaleRows(const LaneRows &rows, int64_t count, int64_t width,
                 const LaneRows &factors);

  /// Copies a part of `tensor` into `rows`, times `scale`: rows go along
  /// dimension `rowDim` from `firstRow` on, `numRows` of them, lanes along
  /// `laneDim`. What lies the other way round is transposed square by square.
  void pack(const AttentionTensor &tensor, AttentionPoint at, unsigned rowDim,
            Index firstRow, int64_t numRows, unsigned laneDim, LaneRun run,
            const LaneRows &rows, double scale = 1);
  /// Copies `rows` into a part of `tensor`, likewise.
  void unpack(const LaneRows &rows, const AttentionTensor &tensor,
              AttentionPoint at, unsigned rowDim, Index firstRow,
              int64_t numRows, unsigned laneDim, LaneRun run);

  /// Calls `body` for the first lane of each `getFeatureLanes` of `features`.
  void forFeatures(int64_t features, llvm::function_ref<void(Index)> body) {
    int64_t lanes = getFeatureLanes(features);
    for (int64_t lane = 0; lane < features; lane += lanes)
      body(Index::constant(lane));
  }

  /// Calls `body` for register tiles of `rows` rows with what carries through
  /// them: the first row of a tile, and how many it has.
  SmallVector<Value> forTiles(
      int64_t rows, int64_t width, ValueRange inits,
      llvm::function_ref<SmallVector<Value>(Index, int64_t, ValueRange)> body);

  /// Calls `body` for the blocks of a line of the pattern, or without one for
  /// all `extent` entries, `size` at a time: the first entry, how many there
  /// are, and with a pattern the first of those that come next, which lie
  /// anywhere and want to be prefetched.
  SmallVector<Value> forLine(
      View view, Index line, int64_t extent, int64_t size, ValueRange inits,
      llvm::function_ref<SmallVector<Value>(Index, int64_t,
                                            std::optional<Index>, ValueRange)>
          body);

  /// The `count` rows of `tensor` from `first` on along `rowDim`, each with all
  /// elements along `featureDim`: as they lie, if one follows the other in
  /// numbers of the type of sums; else they are packed into `memory`, which
  /// `allocateRows` made.
  FeatureRows getRows(const AttentionTensor &tensor, AttentionPoint at,
                      unsigned rowDim, Index first, int64_t count,
                      unsigned featureDim, const LaneRows &memory);
  LaneRows allocateRows(const AttentionTensor &tensor, unsigned rowDim,
                        int64_t count, unsigned featureDim);
  /// `width` lanes of a row, and one element of it.
  Value loadFeatures(const FeatureRows &rows, Index row, Index lane,
                     int64_t width);
  Value loadFeature(const FeatureRows &rows, Index row, Index feature);

  /// Prefetches the features of a row of `tensor` that a tile of `lanes` lanes
  /// has, from that of `at` on, where they lie side by side: to write them if
  /// they are written here.
  void prefetch(const AttentionTensor &tensor, AttentionPoint at,
                unsigned featureDim, int64_t lanes);

  /// Adds to `sums`, a row of lanes each, the products of `factor(k, row)`, a
  /// number, and the lanes `vector(k)`, over all `k` below `summands`.
  SmallVector<Value> multiply(ValueRange sums, int64_t summands, int64_t width,
                              llvm::function_ref<Value(Index)> vector,
                              llvm::function_ref<Value(Index, int64_t)> factor);

  /// The scores of a row or a column, `products` being the scaled sums over
  /// features, with bias and mask: lanes run along dimension `dim`.
  Value getScores(Value products, AttentionPoint at, unsigned dim, LaneRun run);

  /// `value`, probabilities or their gradients, times the factor.
  Value applyFactor(Value value, AttentionPoint at, unsigned dim, LaneRun run);

  /// Where the element of `tensor` at `at` lies.
  SmallVector<Index> place(const AttentionTensor &tensor,
                           AttentionPoint at) const;

  /// Part `part` of the statistics of the rows, as a tensor of the attention.
  AttentionTensor getStatistics(LsePart part) const;

  Emitter &e;
  const Attention &attention;
  const DenseMap<Value, Value> &outputs;
  const PatternViews &patterns;
  Type sumType;

private:
  /// Calls `body` for vectors of `count` rows of `width` lanes: the row, the
  /// first lane, and how many.
  void forVectors(int64_t count, int64_t width,
                  llvm::function_ref<void(Index, Index, int64_t)> body);
  /// Calls `body` for squares of rows and lanes, a vector each way: the first
  /// row and lane, and how many lanes are used. Returns the rows that are left.
  int64_t forSquares(int64_t numRows, LaneRun run,
                     llvm::function_ref<void(Index, Index, int64_t)> body);
  /// True if a row along `featureDim` follows the other along `rowDim`, whole
  /// vectors of the type of sums.
  bool areRows(const AttentionTensor &tensor, unsigned rowDim,
               unsigned featureDim) const;
  /// True if elements along `rowDim` lie side by side in `tensor`, and squares
  /// of them are worth it.
  bool isTransposed(const AttentionTensor &tensor, unsigned rowDim,
                    LaneRun run) const;
};

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_ATTENTIONTILES_H

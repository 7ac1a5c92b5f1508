// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops of the gradient of attention.

#ifndef BSR_LIB_CODEGEN_CPU_GRADIENTEMITTER_H
#define BSR_LIB_CODEGEN_CPU_GRADIENTEMITTER_H

#include "AttentionTiles.h"

namespace mlir::bsr::cpu {

/// A work item is a point along the batch dimensions that no gradient is summed
/// up over: it goes through those that the bias lacks, for each through blocks
/// of keys, for each of these through the dimensions that keys and values lack
/// (the heads that share them), and then through the queries, row by row, lanes
/// being keys. Of the gradients of queries, keys and values, lanes are
/// features: those of a block's keys and values are summed up in its cache,
/// those of the queries where they lie, or in memory of their own. No other
/// work item adds to them, or to the gradient of the bias.
class GradientEmitter : AttentionTiles {
public:
  GradientEmitter(Emitter &e, const Attention &attention,
                  const DenseMap<Value, Value> &outputs,
                  const PatternViews &patterns, Value querySums)
      : AttentionTiles(e, attention, outputs, patterns), querySums(querySums),
        numFeatures(attention.getFeatures()),
        numValueFeatures(attention.getValueFeatures()),
        featureWidth(getFeatureWidth(numFeatures)),
        valueWidth(getFeatureWidth(numValueFeatures)),
        gradientScale(attention.dbias ? 1 : attention.scale) {}

  void emit();

private:
  void forBatch(ArrayRef<Index> batch, ArrayRef<unsigned> dims,
                llvm::function_ref<void(ArrayRef<Index>)> body);
  void emitItem(ArrayRef<Index> batch);
  void emitPoint(ArrayRef<Index> batch);
  void computeMeans(ArrayRef<Index> batch);
  void emitKeys(ArrayRef<Index> batch, Index line, LaneRun run);
  void packKeys(ArrayRef<Index> batch);
  void addQueries(ArrayRef<Index> batch, Index line);
  void addBlock(AttentionPoint at, int64_t count, std::optional<Index> next);
  void addTo(const LaneRows &memory, const AttentionTensor &result,
             const AttentionTensor &operand, unsigned featureDim,
             const LaneRows &factors, const FeatureRows &rows, int64_t count);
  Index getNext(Index key);
  void addToQueries(AttentionPoint at, int64_t count,
                    std::optional<Index> next);
  void storeKeys(const AttentionTensor &tensor, unsigned featureDim,
                 const LaneRows &sums, ArrayRef<Index> batch);
  SmallVector<Index> placeMean(ArrayRef<Index> batch, Index query) const;
  SmallVector<Index> placeQuery(ArrayRef<Index> batch, Index query, Index lane,
                                int64_t width);
  void clearQueries(ArrayRef<Index> batch);
  void storeQueries(ArrayRef<Index> batch);
  void clearBias(ArrayRef<Index> batch);
  void addToBias(Value gradient, AttentionPoint at);
  Value readLse(LsePart part, AttentionPoint at);

  /// Null if they are where the gradient of the queries is.
  Value querySums;
  int64_t numFeatures, numValueFeatures, featureWidth, valueWidth;
  /// What the gradients of probabilities are multiplied with from the start:
  /// the scale, or nothing where the bias has a gradient, which has no scale.
  double gradientScale;
  /// The batch dimensions that keys and values lack, and those that they have
  /// and the bias lacks.
  SmallVector<unsigned> sharedDims, biasDims;
  /// Of the work item: the mean of each row's gradient, scaled, by the position
  /// along the dimensions that keys and values lack.
  Value means;
  /// Of a block of keys.
  LaneRun run;
  LaneRows keys, values, keyMemory, keySums, valueSums;
  FeatureRows keyRows;
  /// Of a block of queries.
  LaneRows probabilities, gradients, queryMemory, dyMemory;
};

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_GRADIENTEMITTER_H

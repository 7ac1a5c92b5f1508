// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain loops for look-ups of rows by index and their gradients.

#ifndef BSR_CODEGEN_COMMON_ROWLOOPS_H
#define BSR_CODEGEN_COMMON_ROWLOOPS_H

#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Dialect/Rows.h"

namespace mlir::bsr {

/// The tokens of each row that `indices` choose, in their order: a list for
/// each of `numRows` rows, in a buffer of `getType`. Without a buffer, all
/// tokens are looked at for each row.
class RowTokens {
public:
  RowTokens(Evaluator &e, Value indices, int64_t numRows, Value links)
      : e(e), indices(indices), links(links), numRows(numRows) {
    auto type = cast<RankedTensorType>(indices.getType());
    shape = type.getShape();
    numTokens = type.getNumElements();
  }
  static RowTokens of(Evaluator &e, ScatterRowsOp op, Value links);
  static RowTokens of(Evaluator &e, ScoreRowsOp op, Value links);

  /// Of each row, and then of each token, the next token of that row; the
  /// number of tokens where there is none.
  static MemRefType getType(Value indices, int64_t numRows);

  /// Fills the buffer, one token after the other, from the last on.
  void emitLinks();
  /// The first token of `row`.
  Value getFirst(Index row);
  /// `sum` and what `body` gives for each token of `row`, of which `first` is
  /// the first; `body` takes the place of a token in the indices.
  Value addTokens(Index row, Value first, Value sum,
                  llvm::function_ref<Value(ArrayRef<Index>)> body);

  /// The place of token `number` in the indices.
  SmallVector<Index> getPlace(Index number);

  Evaluator &e;
  Value indices, links;
  ArrayRef<int64_t> shape;
  int64_t numRows, numTokens;

private:
  /// What the buffer has at `item`.
  Value readLink(Index item);
};

/// `tokens`, the place in all other dimensions, with `feature` as dimension
/// `dim`.
SmallVector<Index> addFeature(ArrayRef<Index> tokens, int64_t dim,
                              Index feature);

/// Calls its argument's body for features of a row.
using ForFeatures = llvm::function_ref<void(llvm::function_ref<void(Index)>)>;

/// Clears `row` of what `op` makes, in `output`.
void emitClearedRow(Evaluator &e, ScatterAddOp op, Value output, Index row,
                    ForFeatures forFeatures);
/// Adds the updates of `op` to rows in `output`, which are cleared, in order.
void emitAddedUpdates(Evaluator &e, ScatterAddOp op, Value output,
                      ForFeatures forFeatures);
/// Emits `op` into `output`: a row of the result is one point's.
void emitGatherRows(Evaluator &e, GatherRowsOp op, Value output,
                    const PatternViews &patterns);
/// Emits `op` into `output`, by the lists of `tokens`.
void emitScatterRows(Evaluator &e, ScatterRowsOp op, Value output,
                     const PatternViews &patterns, RowTokens tokens);
void emitScoreRows(Evaluator &e, ScoreRowsOp op, Value output,
                   RowTokens tokens);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_ROWLOOPS_H

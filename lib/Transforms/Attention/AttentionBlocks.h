// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The blocks of queries by keys that an attention is computed of.

#ifndef BSR_TRANSFORMS_ATTENTION_ATTENTIONBLOCKS_H
#define BSR_TRANSFORMS_ATTENTION_ATTENTIONBLOCKS_H

#include "AttentionMatch.h"

namespace mlir::bsr {

/// Blocks of queries by keys, by rows.
struct AttentionBlocks {
  int64_t blockRows, blockCols;
  SmallVector<int32_t> rowPtr{0}, colIdx{};
};

/// Where the masks of an attention, and biases of zeros and negative
/// infinities, are true, of those that depend on positions alone.
class LiveEntries {
public:
  /// Nothing if there are no such masks, or they are too large to evaluate.
  static std::optional<LiveEntries> get(const AttentionMatch &match);

  bool isLive(int64_t query, int64_t key);
  /// True if what was not live so far has negative infinity for a score: a row
  /// of nothing else is not the mean of all values.
  bool isInfinite() const { return infinite; }

private:
  explicit LiveEntries(const AttentionMatch &match);

  const AttentionMatch *match;
  EntryValues values;
  SmallVector<AttentionMatch::Mask> masks;
  SmallVector<LabelledTensor> biases;
  bool infinite;
};

/// The blocks in which the masks of `match` have an entry; nothing if there are
/// no masks of positions, or every block is live, or a row would be left
/// without what the program has there.
std::optional<AttentionBlocks> getLiveBlocks(const AttentionMatch &match);

/// The pattern of queries by keys that a mask of `match` is masked by, an
/// argument that is marked: where it stores no block, nothing is seen. Null if
/// there is none; `obstacle` says why if scores are masked by one all the same.
Value getMaskPattern(const AttentionMatch &match, AttentionObstacle &obstacle);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_ATTENTION_ATTENTIONBLOCKS_H

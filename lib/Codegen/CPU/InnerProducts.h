// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums over tokens of products of activations, vectors along tokens.

#ifndef BSR_CODEGEN_CPU_INNERPRODUCTS_H
#define BSR_CODEGEN_CPU_INNERPRODUCTS_H

#include "PairProducts.h"
#include "SplitLanes.h"
#include "TokenRounds.h"

namespace mlir::bsr::cpu {

/// Register tiles of `sum_t streamed[t, i] stationary[t, j]`: vectors along
/// tokens, whose lanes are added up at last. A strip, if there is one, holds
/// features of `stationary` for many tiles.
///
/// A strip may be *grouped*: its features are four vectors, each of a quarter
/// of them, of as many tokens as lanes are left for each. Then what is streamed
/// is loaded once for all features of a vector, and fewer lanes are added up.
class InnerProducts {
public:
  /// Vectors of a grouped strip: with as many rows or more, they keep all
  /// multiply-adds busy.
  static constexpr int64_t stripVectors = 4;
  /// `streamed` and `stationary` are activations as `tokens` describes; strips
  /// are of `features` features, sums in `sumType`.
  InnerProducts(Emitter &e, Value streamed, Value stationary,
                const TokenRounds &tokens, int64_t features, Type sumType)
      : e(e), streamed(streamed), stationary(stationary), tokens(tokens),
        features(features), sumType(sumType),
        hasPairs(arePaired(e.target, streamed, stationary, sumType)),
        isSplit(canSplitTokens(e.target, streamed, stationary,
                               tokens.activations.tokens, sumType)) {}

  /// Whether vectors of tokens of both operands are split (`SplitLanes.h`): in
  /// which order tokens are summed up does not matter.
  static bool canSplitTokens(const CPUTarget &target, Value streamed,
                             Value stationary, int64_t tokens, Type sumType) {
    int64_t width = 2 * target.lanes;
    return target.count >= 32 && tokens % width == 0 &&
           !arePaired(target, streamed, stationary, sumType) &&
           canSplit(streamed, sumType, width) &&
           canSplit(stationary, sumType, width);
  }

  /// Makes memory for a round of a strip; without it, tiles read `stationary`.
  void allocateStrip() {
    strip = e.allocate({features, tokens.size()},
                       hasPairs ? e.b.getBF16Type() : sumType);
  }
  /// The same for a grouped strip, on which there are `tiles` tiles: each of
  /// them prefetches its share of the next strip.
  void allocateGroups(int64_t tiles, bool isTransposed);
  /// Begins with the strip of features from `first` on.
  void start(const Round &round, Index first);
  /// The sums of products of features `rows` of `streamed` and `cols` features
  /// of the strip from `col` on, in this order, or if `isTransposed` all rows
  /// of a column side by side: `group` in a vector. On the way it prefetches
  /// features `prefetched` of `streamed`.
  SmallVector<Value> multiply(const Round &round, ArrayRef<Index> rows,
                              Index col, int64_t cols,
                              ArrayRef<Index> prefetched, bool isTransposed,
                              int64_t group);
  /// The same with all features of a grouped strip, by tile number `tile` on
  /// it: the sums of one row after the other, as many in a vector as it has
  /// lanes. If it is transposed, `rows` are `dotCols`.
  SmallVector<Value> multiplyGroups(const Round &round, ArrayRef<Index> rows,
                                    ArrayRef<Index> prefetched, Index tile);

private:
  void startGroups(const Round &round);
  /// Where a grouped strip has vector `vector` from token `token` on.
  Index getStripPlace(Index token, int64_t vector) const;
  SmallVector<Value> sumGroups(ArrayRef<Value> sums);

  Emitter &e;
  Value streamed, stationary;
  const TokenRounds &tokens;
  int64_t features;
  Type sumType;
  /// Tokens are multiplied in pairs, where lanes allow it.
  bool hasPairs;
  /// A vector of sums takes the even tokens of two, then the odd ones.
  bool isSplit;
  Value strip;
  // Of a grouped strip: features of a vector, of how many tokens each, and
  // which. `adjacent` vectors have neighbours of each, so that their sums come
  // in the order of the results.
  int64_t groups = 0, groupTokens = 0, adjacent = 0;
  /// Features of the next strip that a tile prefetches.
  int64_t share = 0;
  bool isTransposed = false;
  Index firstFeature;
};

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_INNERPRODUCTS_H

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
class InnerProducts {
public:
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

private:
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
  Index firstFeature;
};

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_INNERPRODUCTS_H

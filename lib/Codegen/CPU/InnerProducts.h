// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums over tokens of products of activations, vectors along tokens.

#ifndef BSR_CODEGEN_CPU_INNERPRODUCTS_H
#define BSR_CODEGEN_CPU_INNERPRODUCTS_H

#include "TokenRounds.h"

namespace mlir::bsr {

/// Register tiles of `sum_t swept[t, i] held[t, j]`: vectors along tokens,
/// whose lanes are added up at last. A strip, if there is one, holds features
/// of `held` for many tiles.
class InnerProducts {
public:
  /// `swept` and `held` are activations as `tokens` describes; strips are of
  /// `features` features, sums in `sumType`.
  InnerProducts(Emitter &e, Value swept, Value held, const TokenRounds &tokens,
                int64_t features, Type sumType)
      : e(e), swept(swept), held(held), tokens(tokens), features(features),
        sumType(sumType) {}

  /// Makes memory for a round of a strip; without it, tiles read `held`.
  void allocateStrip() {
    strip = e.allocate({features, tokens.size()}, sumType);
  }
  /// Begins with the strip of features from `first` on.
  void start(const Round &round, Index first);
  /// The sums of products of features `rows` of `swept` and `cols` features of
  /// the strip from `col` on, in this order, or if `isTransposed` all rows of a
  /// column side by side: `group` in a vector. On the way it prefetches
  /// features `prefetched` of `swept`.
  SmallVector<Value> multiply(const Round &round, ArrayRef<Index> rows,
                              Index col, int64_t cols,
                              ArrayRef<Index> prefetched, bool isTransposed,
                              int64_t group);

private:
  Emitter &e;
  Value swept, held;
  const TokenRounds &tokens;
  int64_t features;
  Type sumType;
  Value strip;
  Index firstFeature;
};

} // namespace mlir::bsr

#endif // BSR_CODEGEN_CPU_INNERPRODUCTS_H

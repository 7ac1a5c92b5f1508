// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocking of the token dimensions for sums over tokens.

#ifndef BSR_CODEGEN_CPU_TOKENROUNDS_H
#define BSR_CODEGEN_CPU_TOKENROUNDS_H

#include "SparseKernels.h"

namespace mlir::bsr::cpu {

/// A round: where the loops over rounds are, and whether it is the first, which
/// writes the sums that the others add to (null: the only one).
struct Round {
  Round(Emitter &e, ArrayRef<Index> at) : at(at), isFirst(e.areZero(at)) {}
  SmallVector<Index> at;
  Value isFirst;
};

/// Consecutive tokens: the leading indices, the first lane, and how many tokens
/// of the round precede.
struct Tokens {
  SmallVector<Index> leading;
  Index lane, number;
};

/// How a sum over tokens is blocked: in rounds, each of `slices` of the leading
/// dimensions and `sliceLanes` lanes of each slice.
struct TokenRounds {
  TokenRounds(Activations activations) : activations(activations) {}
  /// Makes rounds of at most `limit` tokens, if divisors of what there is allow
  /// it.
  void divide(int64_t limit, int64_t panel);
  /// The tokens of a round.
  int64_t size() const;
  /// A loop over `count` runs of `size` lanes, from lane `first` of
  /// each slice of `round` on.
  SmallVector<Value>
  forRuns(Emitter &e, const Round &round, int64_t first, int64_t size,
          int64_t count, ValueRange inits,
          llvm::function_ref<SmallVector<Value>(const Tokens &, ValueRange)>
              body) const;

  Activations activations;
  SmallVector<int64_t> rounds, slices;
  int64_t sliceLanes = 0;
};

/// Tokens of a round, so that a strip of them stays in the cache.
inline int64_t getStripTokens(int64_t features, CPUTarget target) {
  return std::max<int64_t>(target.streamedBytes() / (4 * features), 1);
}

/// True if a strip of `features` features of a round is no larger than caches
/// can do with, where tokens have no divisors for shorter rounds.
inline bool fitsStrip(int64_t features, const TokenRounds &tokens,
                      CPUTarget target) {
  return features * tokens.size() <= target.streamedBytes();
}

/// What is stored in `memref` once `sum` is added to what an earlier round
/// stored, in its type.
Value addToStored(Emitter &e, Value sum, Value memref, ArrayRef<Index> place,
                  const Round &round);
/// Stores `sum`, or adds it to what an earlier round stored, in `type`.
void storeSum(Emitter &e, Value sum, Value memref, ArrayRef<Index> place,
              const Round &round);

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_TOKENROUNDS_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums over tokens of outer products of activations.

#ifndef BSR_LIB_TRANSFORMS_OUTERPRODUCTS_H
#define BSR_LIB_TRANSFORMS_OUTERPRODUCTS_H

#include "SparseKernels.h"

namespace mlir::bsr {

/// How a sum over tokens goes through them: a round at a time, of `slices` of
/// the leading dimensions and `chunk` lanes of each.
struct TokenRounds {
  TokenRounds(Activations activations) : activations(activations) {}
  /// Makes rounds of at most `limit` tokens, if divisors of what there is allow
  /// it.
  void divide(int64_t limit, int64_t panel);
  /// The tokens of a round.
  int64_t size() const;

  Activations activations;
  SmallVector<int64_t> rounds, slices;
  int64_t chunk = 0;
};

/// A round: where the loops over rounds are, and whether it is the first, which
/// writes the sums that the others add to (null: the only one).
struct Round {
  Round(Emitter &e, ArrayRef<Index> at) : at(at), isFirst(e.areZero(at)) {}
  SmallVector<Index> at;
  Value isFirst;
};

/// Stores `sum`, or adds it to what an earlier round stored, in `type`.
void storeSum(Emitter &e, Value sum, Value memref, ArrayRef<Index> place,
              const Round &round);

/// Lines of tokens from one that is read to one that is asked for: the next
/// line of a row is a panel away, where no processor expects it.
constexpr int64_t linesAhead = 3;

/// Register tiles of `sum_t a[t, r] b[t, c]`: for each token elements of `a`
/// times vectors along columns of `b`, which are transposed into a strip first.
class OuterProducts {
public:
  /// `a` and `b` are activations as `tokens` describes; strips are of `cols`
  /// columns, sums in `sumType`.
  OuterProducts(Emitter &e, Value a, Value b, const TokenRounds &tokens,
                int64_t cols, Type sumType)
      : e(e), a(a), b(b), tokens(tokens), cols(cols), sumType(sumType) {}

  /// Columns of a strip where `extent` columns are to be covered: whole
  /// vectors, as many as a row of a register tile has, if they divide `extent`.
  static int64_t getCols(int64_t extent, Registers registers);
  /// Tokens of a round, so that a strip stays in the cache.
  static int64_t getTokens(int64_t cols) {
    return std::max<int64_t>(cacheBytes / (4 * cols), 1);
  }
  /// The most rows of a tile.
  int64_t maxRows() const;

  /// Memory for a round of a strip.
  Value allocateStrip() { return e.allocate({tokens.size(), cols}, sumType); }
  /// Fills `strip`: columns from `firstCol` on, side by side for each token.
  void transpose(const Round &round, Index firstCol, Value strip);
  /// The sums of `rows` rows of `a` from `firstRow` on times the strip, vectors
  /// of `cols`.
  SmallVector<Value> multiply(const Round &round, Index firstRow, int64_t rows,
                              Value strip);

private:
  /// Consecutive tokens: the leading indices, the first lane, and how many
  /// tokens of the round precede.
  struct Tokens {
    SmallVector<Index> leading;
    Index lane, number;
  };
  /// A loop over the tokens of `round`, `size` lanes at a time.
  SmallVector<Value> forTokens(
      const Round &round, int64_t size, ValueRange inits,
      llvm::function_ref<SmallVector<Value>(const Tokens &, ValueRange)> body);
  SmallVector<Index> getStripPlace(Index token, int64_t col);
  Value readB(const Tokens &at, Index col, Index lane);

  Emitter &e;
  Value a, b;
  const TokenRounds &tokens;
  int64_t cols;
  Type sumType;
};

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_OUTERPRODUCTS_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums over tokens of outer products of activations.

#ifndef BSR_CODEGEN_CPU_OUTERPRODUCTS_H
#define BSR_CODEGEN_CPU_OUTERPRODUCTS_H

#include "TokenRounds.h"

namespace mlir::bsr::cpu {

/// Lines of tokens between one that is read and the one that is prefetched
/// then: the next line of a row is a panel away, where no processor expects it.
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
  static int64_t getCols(int64_t extent, CPUTarget target);
  /// The most rows of a tile.
  int64_t maxRows() const;

  /// Makes memory for a round of a strip.
  void allocateStrip() { strip = e.allocate({tokens.size(), cols}, sumType); }
  /// Begins with the strip of columns from `firstCol` on: side by side for each
  /// token.
  void start(const Round &round, Index firstCol);
  /// The sums of `rows` rows of `a` from `firstRow` on times the strip, vectors
  /// of `cols`.
  SmallVector<Value> multiply(const Round &round, Index firstRow, int64_t rows);

private:
  SmallVector<Index> getStripPlace(Index token, int64_t col);
  Value readB(const Tokens &at, Index col, Index lane);

  Emitter &e;
  Value a, b;
  const TokenRounds &tokens;
  int64_t cols;
  Type sumType;
  Value strip;
};

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_OUTERPRODUCTS_H

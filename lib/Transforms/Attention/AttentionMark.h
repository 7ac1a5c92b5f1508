// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Patterns that users impose on attention.

#ifndef BSR_TRANSFORMS_ATTENTION_ATTENTIONMARK_H
#define BSR_TRANSFORMS_ATTENTION_ATTENTIONMARK_H

#include "AttentionBlocks.h"

namespace mlir::bsr {

/// A pattern for attention whose name matches: a window of blocks around the
/// diagonal, blocks of rows and columns that see and are seen everywhere, and
/// random ones (Beltagy et al., "Longformer", 2020; Zaheer et al., "Big Bird",
/// NeurIPS 2020).
struct AttentionMark {
  using EmitError = llvm::function_ref<InFlightDiagnostic()>;

  /// Reads `attention=<regex> window=3 global=0 random=0 block=64x64 seed=0`.
  static FailureOr<AttentionMark> parse(StringRef text, EmitError emitError);

  bool matches(StringRef name) const;

  /// The blocks of this pattern that the masks of `match` leave; an error if
  /// the blocks do not fit, or a query would see nothing that saw something.
  FailureOr<AttentionBlocks> impose(const AttentionMatch &match,
                                    EmitError emitError) const;

  std::string match;
  int64_t blockRows = 64, blockCols = 64;
  int64_t window = 3, global = 0, random = 0, seed = 0;

private:
  bool isStored(int64_t row, int64_t col, int64_t rows, int64_t cols) const;
  SmallVector<int32_t> getColumns(int64_t row, int64_t rows,
                                  int64_t cols) const;
};

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_ATTENTION_ATTENTIONMARK_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Patterns that users impose on attention.

#include "AttentionMark.h"
#include "support/Random.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace mlir::bsr;

FailureOr<AttentionMark> AttentionMark::parse(StringRef text,
                                              EmitError emitError) {
  AttentionMark mark;
  SmallVector<StringRef> words;
  text.split(words, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef word : words) {
    auto [key, value] = word.split('=');
    if (key == "attention") {
      mark.match = value.str();
      continue;
    }
    if (key == "block") {
      auto [rows, cols] = value.split('x');
      if (rows.getAsInteger(10, mark.blockRows) ||
          cols.getAsInteger(10, mark.blockCols) || mark.blockRows < 1 ||
          mark.blockCols < 1)
        return emitError() << "expected block of a mark of attention to be "
                              "<queries>x<keys>, but got '"
                           << value << "'";
      continue;
    }
    int64_t *number = llvm::StringSwitch<int64_t *>(key)
                          .Case("window", &mark.window)
                          .Case("global", &mark.global)
                          .Case("random", &mark.random)
                          .Case("seed", &mark.seed)
                          .Default(nullptr);
    if (!number)
      return emitError() << "expected attention, block, window, global, random "
                            "or seed of a mark of attention, but got '"
                         << key << "'";
    if (value.getAsInteger(10, *number) || *number < 0)
      return emitError() << "expected " << key
                         << " of a mark of attention to be a number of 0 or "
                            "more, but got '"
                         << value << "'";
  }
  std::string reason;
  if (mark.match.empty() || !llvm::Regex(mark.match).isValid(reason))
    return emitError() << "expected attention of a mark to be a regular "
                          "expression, but got '"
                       << mark.match << "'";
  return mark;
}

bool AttentionMark::matches(StringRef name) const {
  return llvm::Regex(match).match(name);
}

/// True if block (row, col) is in the window or global.
bool AttentionMark::isStored(int64_t row, int64_t col, int64_t rows,
                             int64_t cols) const {
  // Where the diagonal is, if there are fewer queries than keys or more.
  int64_t middle = row * cols / rows;
  bool isNear = window != 0 && std::abs(col - middle) <= (window - 1) / 2;
  // An even window has one block more before than behind.
  isNear |= window != 0 && window % 2 == 0 && middle - col == window / 2;
  return isNear || row < global || col < global;
}

/// The block columns of block row `row`, sorted.
SmallVector<int32_t> AttentionMark::getColumns(int64_t row, int64_t rows,
                                               int64_t cols) const {
  SmallVector<int32_t> stored, others;
  for (int64_t col = 0; col != cols; ++col)
    (isStored(row, col, rows, cols) ? stored : others).push_back(col);
  sparse_opt::SplitMix64 numbers(seed, /*stream=*/0, row);
  for (int64_t count = 0; count != random && !others.empty(); ++count) {
    size_t pick = numbers.below(others.size());
    stored.push_back(others[pick]);
    others.erase(others.begin() + pick);
  }
  llvm::sort(stored);
  return stored;
}

FailureOr<AttentionBlocks> AttentionMark::impose(const AttentionMatch &match,
                                                 EmitError emitError) const {
  int64_t queries = match.extents[match.getQueryDim()];
  int64_t keys = match.extents[match.getKeyDim()];
  if (queries % blockRows != 0 || keys % blockCols != 0)
    return emitError() << "expected blocks that divide " << queries
                       << " queries by " << keys << " keys, but got "
                       << blockRows << "x" << blockCols;
  AttentionBlocks blocks{blockRows, blockCols};
  std::optional<LiveEntries> entries = LiveEntries::get(match);
  int64_t rows = queries / blockRows, cols = keys / blockCols;
  for (int64_t row = 0; row != rows; ++row) {
    SmallVector<int32_t> imposed = getColumns(row, rows, cols), live;
    SmallVector<bool> seen(blockRows, !entries && !imposed.empty());
    for (int32_t col : imposed) {
      bool isAny = !entries;
      for (int64_t i = 0; i != blockRows && entries; ++i)
        for (int64_t j = 0; j != blockCols; ++j) {
          if (!entries->isLive(row * blockRows + i, col * blockCols + j))
            continue;
          seen[i] = isAny = true;
          break;
        }
      if (isAny)
        live.push_back(col);
    }
    for (int64_t i = 0; i != blockRows; ++i) {
      int64_t query = row * blockRows + i;
      auto seesAny = [&] {
        return !entries || llvm::any_of(llvm::seq(keys), [&](int64_t key) {
          return entries->isLive(query, key);
        });
      };
      if (!seen[i] && seesAny())
        return emitError() << "expected a pattern in which each query sees a "
                              "key, but got none for query "
                           << query;
    }
    // Of what is filled in, a row that sees nothing is a mean of values.
    bool isMean = llvm::is_contained(seen, false) && !entries->isInfinite();
    llvm::append_range(blocks.colIdx, isMean ? imposed : live);
    blocks.rowPtr.push_back(blocks.colIdx.size());
  }
  return blocks;
}

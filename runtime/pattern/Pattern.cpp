// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The invariants of a pattern, and its two views.

#include "Pattern.h"
#include "OneThread.h"
#include "base/Status.h"
#include "support/RowView.h"

using namespace sparse_opt;

void sparse_opt::setViews(UpdateRow &row, const PatternIndices &indices) {
  row.rowPtr = placeOf(indices.rowPtr);
  row.colIdx = placeOf(indices.colIdx);
  row.slot = placeOf(indices.slot);
  row.colPtr = placeOf(indices.colPtr);
  row.rowIdx = placeOf(indices.rowIdx);
  row.slotT = placeOf(indices.slotT);
}

/// The steps of an update know these views of `pattern`.
static UpdateRow rowOf(const Pattern &pattern, const PatternIndices &indices) {
  UpdateRow row = {};
  row.rows = uint32_t(pattern.gridRows());
  row.cols = uint32_t(pattern.gridCols());
  setViews(row, indices);
  return row;
}

/// Builds the column view of a row view.
static void buildColumns(const Pattern &pattern,
                         const PatternIndices &indices) {
  UpdateRow row = rowOf(pattern, indices);
  OneThread team(row);
  makeColumns(
      team, uint64_t(indices.rowPtr[row.rows]),
      [&](uint64_t k, uint64_t) { return uint32_t(indices.colIdx[k]); });
}

void sparse_opt::listStored(const Pattern &pattern, const int32_t *rowPtr,
                            const int32_t *colIdx, int64_t *stored) {
  UpdateRow row = rowOf(pattern, {});
  row.rowPtr = placeOf(rowPtr);
  row.colIdx = placeOf(colIdx);
  row.stored = placeOf(stored);
  OneThread team(row);
  listStored(team);
}

void sparse_opt::buildViews(const Pattern &pattern, const int64_t *stored,
                            int64_t blocks, const PatternIndices &indices) {
  UpdateRow row = rowOf(pattern, indices);
  row.stored = placeOf(stored);
  OneThread team(row);
  makeViews(team, uint64_t(blocks));
}

namespace {
/// Checks a view of one pattern, place by place.
class Checker {
public:
  Checker(const Pattern &pattern, const bsr_pattern_view &view,
          PatternScratch &scratch)
      : pattern(pattern), view(view), scratch(scratch) {}

  void check() {
    checkSizes();
    checkRows();
    checkSlots();
    if (view.col_ptr)
      checkColumns();
  }

private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts &...parts) const {
    fail(BSR_INVALID_PATTERN, parts...);
  }

  /// "<array>[<place>] of pattern '<name>'"
  std::string element(const char *array, int64_t place) const {
    return std::string(array) + "[" + std::to_string(place) + "] of pattern '" +
           pattern.name + "'";
  }

  void checkSizes() const {
    if (view.blocks < 0 || view.blocks > pattern.mostBlocks())
      refuse("expected the blocks of pattern '", pattern.name,
             "' to be in [0, ", pattern.mostBlocks(), "], but got ",
             view.blocks);
    if (!view.row_ptr || (view.blocks && !view.col_idx))
      refuse("expected row_ptr and col_idx of pattern '", pattern.name,
             "' to point somewhere, but got null");
    bool all = view.slot && view.col_ptr && view.row_idx && view.slot_t;
    bool none = !view.col_ptr && !view.row_idx && !view.slot_t;
    if (!all && !none)
      refuse("expected slot, col_ptr, row_idx and slot_t of pattern '",
             pattern.name, "' together, but got some of them");
  }

  void checkRows() const {
    const int32_t *rowPtr = view.row_ptr, *colIdx = view.col_idx;
    RowViewFault fault = findFault(pattern.gridRows(), pattern.gridCols(),
                                   view.blocks, rowPtr, colIdx);
    int64_t place = fault.place;
    switch (fault.kind) {
    case RowViewFault::None:
      return;
    case RowViewFault::Start:
      refuse("expected ", element("row_ptr", place), " to be 0, but got ",
             rowPtr[place]);
    case RowViewFault::Pointer:
      refuse("expected ", element("row_ptr", place), " to be in [", fault.least,
             ", ", fault.most, "], but got ", rowPtr[place]);
    case RowViewFault::End:
      refuse("expected ", element("row_ptr", place),
             " to be the number of blocks ", view.blocks, ", but got ",
             rowPtr[place]);
    case RowViewFault::Column:
      refuse("expected ", element("col_idx", place), ", in block row ",
             fault.row, ", to be in [", fault.least, ", ", fault.most,
             "], but got ", colIdx[place]);
    }
  }

  void checkSlots() const {
    if (!view.slot)
      return;
    std::fill_n(scratch.marks, pattern.slots / 64 + 1, 0);
    for (int64_t k = 0; k < view.blocks; ++k) {
      int32_t slot = view.slot[k];
      if (slot < 0 || slot >= pattern.slots)
        refuse("expected ", element("slot", k), " to be in [0, ",
               pattern.slots - 1, "], but got ", slot);
      uint64_t bit = uint64_t(1) << (slot % 64);
      if (scratch.marks[slot / 64] & bit)
        refuse("expected ", element("slot", k),
               " to be used by no other block, but got ", slot, " again");
      scratch.marks[slot / 64] |= bit;
    }
  }

  /// The column view follows from the row view, so it has to be that.
  void checkColumns() const {
    // Only the column view is written.
    auto own = [](const int32_t *view) { return const_cast<int32_t *>(view); };
    buildColumns(pattern, {own(view.row_ptr), own(view.col_idx), own(view.slot),
                           scratch.colPtr, scratch.rowIdx, scratch.slotT});
    checkEqual("col_ptr", view.col_ptr, scratch.colPtr, pattern.gridCols() + 1);
    checkEqual("row_idx", view.row_idx, scratch.rowIdx, view.blocks);
    checkEqual("slot_t", view.slot_t, scratch.slotT, view.blocks);
  }

  void checkEqual(const char *array, const int32_t *found,
                  const int32_t *expected, int64_t size) const {
    int64_t place = std::mismatch(found, found + size, expected).first - found;
    if (place < size)
      refuse("expected ", element(array, place), " to be ", expected[place],
             " as in the row view, but got ", found[place]);
  }

  const Pattern &pattern;
  const bsr_pattern_view &view;
  PatternScratch &scratch;
};
} // namespace

void sparse_opt::checkPattern(const Pattern &pattern,
                              const bsr_pattern_view &view,
                              PatternScratch &scratch) {
  Checker(pattern, view, scratch).check();
}

void sparse_opt::assignPattern(const Pattern &pattern,
                               const bsr_pattern_view &view,
                               const PatternIndices &indices) {
  // The view may lie in the buffers themselves.
  std::copy_n(view.row_ptr, pattern.gridRows() + 1, indices.rowPtr);
  std::copy_n(view.col_idx, view.blocks, indices.colIdx);
  for (int64_t k = 0; k < view.blocks; ++k)
    indices.slot[k] = view.slot ? view.slot[k] : int32_t(k);
  buildColumns(pattern, indices);
}

// Floyd's sample (Bentley and Floyd, "A sample of brilliance", 1987); a bit for
// each rank gives them back in order.
void sparse_opt::chooseRanks(int64_t absent, int64_t count,
                             const RandomStream &random, int64_t update,
                             uint64_t *marks, int64_t *ranks) {
  int64_t words = absent / 64 + 1;
  std::fill_n(marks, words, 0);
  auto isMarked = [&](int64_t rank) {
    return marks[rank / 64] >> (rank % 64) & 1;
  };
  uint64_t draw = uint64_t(update) << 32;
  for (int64_t last = absent - count; last < absent; ++last, ++draw) {
    int64_t rank = int64_t(random.below(uint64_t(last) + 1, draw));
    if (isMarked(rank))
      rank = last;
    marks[rank / 64] |= uint64_t(1) << (rank % 64);
  }

  for (int64_t word = 0; word < words; ++word)
    for (uint64_t rest = marks[word]; rest; rest &= rest - 1)
      *ranks++ = word * 64 + __builtin_ctzll(rest);
}

void sparse_opt::chooseAbsent(const Pattern &pattern, const int64_t *stored,
                              int64_t blocks, int64_t count,
                              const RandomStream &random, int64_t update,
                              uint64_t *marks, int64_t *chosen) {
  chooseRanks(pattern.allBlocks() - blocks, count, random, update, marks,
              chosen);
  UpdateRow row = {};
  OneThread team(row);
  numberRanks(team, atPlace<const uint64_t>(placeOf(stored)), uint64_t(blocks),
              atPlace<uint64_t>(placeOf(chosen)), uint64_t(count));
}

void sparse_opt::makePattern(const Pattern &pattern, int64_t blocks,
                             uint64_t seed, const PatternIndices &indices,
                             PatternScratch &scratch) {
  chooseAbsent(pattern, nullptr, 0, blocks,
               RandomStream(seed, "pattern", pattern.name), 0, scratch.marks,
               scratch.stored);
  for (int64_t k = 0; k < blocks; ++k)
    indices.slot[k] = int32_t(k);
  buildViews(pattern, scratch.stored, blocks, indices);
}

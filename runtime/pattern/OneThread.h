// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread of the host, as a team that updates a pattern (UpdateSteps.h): items
// are one after the other, and a warp is one lane.

#ifndef BSR_RUNTIME_PATTERN_ONETHREAD_H
#define BSR_RUNTIME_PATTERN_ONETHREAD_H

#include "support/UpdateSteps.h"
#include <algorithm>
#include <iterator>

namespace sparse_opt {

/// The place of `memory` in an UpdateRow of the host, and back.
inline uint64_t placeOf(const void *memory) {
  return reinterpret_cast<uint64_t>(memory);
}
template <typename T>
T *atPlace(uint64_t place) {
  return reinterpret_cast<T *>(place);
}

class OneThread {
public:
  using Size = uint64_t;
  using Votes = bool;

  explicit OneThread(const UpdateRow &row) : row(&row) {}

  static uint32_t *words(uint64_t place) { return atPlace<uint32_t>(place); }
  static uint64_t *numbers(uint64_t place) { return atPlace<uint64_t>(place); }
  static float *floats(uint64_t place) { return atPlace<float>(place); }
  static double *doubles(uint64_t place) { return atPlace<double>(place); }
  static uint8_t *flags(uint64_t place) { return atPlace<uint8_t>(place); }
  UpdateResult *result() const { return atPlace<UpdateResult>(row->result); }

  static void wait() {}
  static void waitForWarp() {}

  template <typename Body>
  static void forEachItem(Size count, Body body) {
    for (Size i = 0; i < count; ++i)
      body(i);
  }
  template <typename Body>
  static void forEachLane(Size count, Body body) {
    for (Size i = 0; i < count; ++i)
      body(i, true);
  }
  template <typename Body>
  void forEachBlock(Body body) const {
    const uint32_t *rowPtr = words(row->rowPtr);
    for (Size r = 0; r < row->rows; ++r)
      for (Size k = rowPtr[r], end = rowPtr[r + 1]; k < end; ++k)
        body(k, r);
  }
  // What is taken tells what is in front: there is nothing to look at before.
  template <int N, typename Look, typename Take>
  static Counts<N, Size> scan(Size count, Look, Take take) {
    Counts<N, Size> sums = {};
    for (Size i = 0; i < count; ++i)
      sums.add(take(i, true, sums));
    return sums;
  }

  static Votes vote(bool is) { return is; }
  static Size size(Votes votes) { return votes; }
  static Size inFront(Votes) { return 0; }
  static Size sum(Size number) { return number; }
  static Size sumInFront(Size) { return 0; }

  // Results rise: a search goes on where the one before it ended.
  static Size cursor() { return 0; }
  template <typename IsBefore>
  static Size search(Size &cursor, const uint64_t *list, Size count,
                     IsBefore isBefore) {
    while (cursor < count && isBefore(list[cursor], cursor))
      ++cursor;
    return cursor;
  }

  // Whether something is put is hard to foresee: no branch depends on it.
  template <typename T>
  static void put(T *list, Size place, T value, bool) {
    list[place] = value;
  }
  // A byte each: a bit would wait for the one before it.
  static void setFlags(uint8_t *list, Size i, bool is) { list[i] = is; }
  static bool isSet(const uint8_t *list, Size i) { return list[i]; }
  template <typename Body>
  static void ifFirst(Body body) {
    body();
  }

  // Digits are larger than those of a GPU, and keys are held once they are few.
  static constexpr int digitBits = 11;
  static constexpr bool holdsKeys = true;
  void clearDigits() { std::fill(std::begin(counts), std::end(counts), 0); }
  void countDigit(uint32_t digit, bool isIn) {
    if (isIn)
      ++counts[digit];
  }
  struct Digit {
    uint32_t digit;
    Size below;
  };
  Digit findDigit(Size rank) const {
    Digit found = {0, 0};
    for (; found.below + counts[found.digit] <= rank; ++found.digit)
      found.below += counts[found.digit];
    return found;
  }
  bool canHold(uint32_t digit) const { return counts[digit] <= mostHeld; }
  /// The key of `rank`, which has the bits of `found` under `mask`; as many
  /// keys as it says lie below all of these.
  template <typename Key, typename KeyAt>
  static Selected<Key, Size> selectHeld(Size items, Size rank, KeyAt keyAt,
                                        Selected<Key, Size> found, Key mask) {
    Key held[mostHeld], *end = held;
    for (Size i = 0; i < items; ++i)
      if (Key key = keyAt(i); (key & mask) == found.key)
        *end++ = key;
    Key *middle = held + (rank - found.below);
    std::nth_element(held, middle, end);
    Key last = *middle;
    auto below =
        std::count_if(held, middle, [=](Key key) { return key < last; });
    return {last, found.below + Size(below)};
  }

  /// The pointers to columns count their blocks, and then move over them.
  class Columns {
  public:
    explicit Columns(const OneThread &team)
        : colPtr(words(team.row->colPtr)), cols(team.row->cols) {
      std::fill_n(colPtr, cols + 1, 0);
    }
    void add(uint32_t, uint32_t column) const { ++colPtr[column]; }
    uint32_t count(Size column, bool) const { return colPtr[column]; }
    Size place(uint32_t, uint32_t column) const { return colPtr[column]++; }
    // Each pointer has moved to the end of its column: the start of the next.
    void finish() const {
      std::copy_backward(colPtr, colPtr + cols, colPtr + cols + 1);
      colPtr[0] = 0;
    }

  private:
    uint32_t *colPtr;
    Size cols;
  };

  const UpdateRow *row;

private:
  static constexpr Size mostHeld = 1024;
  Size counts[1 << digitBits];
};

/// Writes the places of the `count` items of the lowest keys to `taken`, in
/// order; of equal keys the first. `taken` has room for one more.
template <typename Place, typename KeyAt>
void takeLowest(int64_t items, int64_t count, KeyAt keyAt, Place *taken) {
  if (count == 0)
    return;
  UpdateRow none = {};
  OneThread team(none);
  takeLowest(
      team, uint64_t(items), uint64_t(count),
      [&](uint64_t i) { return keyAt(int64_t(i)); },
      [=](uint64_t i, bool, bool, uint64_t place) { taken[place] = Place(i); });
}

} // namespace sparse_opt

#endif // BSR_RUNTIME_PATTERN_ONETHREAD_H

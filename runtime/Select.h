// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The key of a given rank, exactly and in linear time.

#ifndef BSR_RUNTIME_SELECT_H
#define BSR_RUNTIME_SELECT_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace bsr {

/// An unsigned number that orders as `norm`, which is not negative.
inline uint64_t keyOf(double norm) {
  uint64_t key;
  std::memcpy(&key, &norm, sizeof key);
  return key;
}

/// An unsigned number that orders as `score`, equal for zeros of both signs; 0,
/// below all numbers, for the NaN of which every bit is set.
inline uint32_t keyOf(float score) {
  uint32_t bits;
  score += 0.0f; // of the two zeros, the positive one; NaN stays
  std::memcpy(&bits, &score, sizeof bits);
  return bits ^ (-(bits >> 31) | uint32_t(1) << 31);
}

/// The same of a number of 64 bits that may be negative.
inline uint64_t signedKeyOf(double number) {
  uint64_t key = keyOf(number + 0.0);
  return key ^ (-(key >> 63) | uint64_t(1) << 63);
}
inline uint64_t signedKeyOf(int64_t number) {
  return uint64_t(number) ^ uint64_t(1) << 63;
}

/// A key, and how many others are lower.
template <typename Key>
struct Selected {
  Key key;
  int64_t below;
};

/// Selects the key of rank `rank` (from 0, rising) of those that `forEach`
/// passes to its argument: radix selection, one call of `forEach` a digit,
/// until so few keys are left that they can be held.
template <typename Key, typename ForEach>
Selected<Key> selectKey(int64_t rank, ForEach forEach) {
  constexpr int digitBits = 11;
  constexpr Key digits = (1 << digitBits) - 1;
  Key prefix = 0, mask = 0;
  int64_t below = 0;
  for (int shift = 8 * sizeof(Key); shift > 0;) {
    // The last digit may overlap the one before it.
    shift = std::max(shift - digitBits, 0);
    int64_t counts[size_t(digits) + 1] = {};
    forEach([&](Key key) {
      if ((key & mask) == prefix)
        ++counts[key >> shift & digits];
    });
    Key digit = 0;
    for (; below + counts[digit] <= rank; ++digit)
      below += counts[digit];
    prefix |= digit << shift;
    mask |= digits << shift;

    Key rest[1024];
    if (size_t(counts[digit]) > std::size(rest))
      continue;
    Key *end = rest;
    forEach([&](Key key) {
      if ((key & mask) == prefix)
        *end++ = key;
    });
    Key *middle = rest + (rank - below);
    std::nth_element(rest, middle, end);
    Key found = *middle;
    return {found, below + std::count_if(rest, middle,
                                         [&](Key key) { return key < found; })};
  }
  return {prefix, below};
}

/// Writes the places of the `count` lowest keys to `taken`, in order; of equal
/// keys the first. `forEach` passes places, in order, and `keyAt` is their key.
/// `taken` has room for one more.
template <typename Place, typename ForEach, typename KeyAt>
void takeLowest(int64_t count, ForEach forEach, KeyAt keyAt, Place *taken) {
  if (count == 0)
    return;
  using Key = decltype(keyAt(int64_t(0)));
  Selected<Key> last = selectKey<Key>(count - 1, [&](auto visit) {
    forEach([&](int64_t place) { visit(keyAt(place)); });
  });
  int64_t ties = count - last.below;
  // Which ones are taken is hard to foresee: no branch depends on it.
  forEach([&](int64_t place) {
    Key key = keyAt(place);
    bool isTie = key == last.key;
    *taken = Place(place);
    taken += (key < last.key) | (isTie & (ties > 0));
    ties -= isTie;
  });
}

} // namespace bsr

#endif // BSR_RUNTIME_SELECT_H

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The key of a given rank, exactly and in linear time.

#ifndef BSR_RUNTIME_SELECT_H
#define BSR_RUNTIME_SELECT_H

#include <cstdint>
#include <cstring>

namespace bsr {

/// An unsigned number that orders as `norm`, which is not negative.
inline uint64_t keyOf(double norm) {
  uint64_t key;
  std::memcpy(&key, &norm, sizeof key);
  return key;
}

/// An unsigned number that orders as `score`, equal for zeros of both signs.
inline uint32_t keyOf(float score) {
  uint32_t bits;
  score += 0.0f; // of the two zeros, the positive one
  std::memcpy(&bits, &score, sizeof bits);
  return bits >> 31 ? ~bits : bits | uint32_t(1) << 31;
}

/// A key, and how many others are lower.
template <typename Key>
struct Selected {
  Key key;
  int64_t below;
};

/// Selects the key of rank `rank` (from 0, rising) of those that `forEach`
/// passes to its argument: radix selection, one call of `forEach` a digit.
template <typename Key, typename ForEach>
Selected<Key> selectKey(int64_t rank, ForEach forEach) {
  constexpr int digitBits = 11, bits = 8 * sizeof(Key);
  constexpr Key digits = (1 << digitBits) - 1;
  Key prefix = 0, mask = 0;
  int64_t below = 0;
  for (int shift = (bits - 1) / digitBits * digitBits; shift >= 0;
       shift -= digitBits) {
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
  }
  return {prefix, below};
}

/// Passes the places of the `count` lowest keys to `take`, in order; of equal
/// keys the first. `forEach` passes places, in order, and `keyAt` is their key.
template <typename ForEach, typename KeyAt, typename Take>
void takeLowest(int64_t count, ForEach forEach, KeyAt keyAt, Take take) {
  if (count == 0)
    return;
  using Key = decltype(keyAt(int64_t(0)));
  Selected<Key> last = selectKey<Key>(count - 1, [&](auto visit) {
    forEach([&](int64_t place) { visit(keyAt(place)); });
  });
  int64_t ties = count - last.below;
  forEach([&](int64_t place) {
    Key key = keyAt(place);
    if (key < last.key || (key == last.key && ties-- > 0))
      take(place);
  });
}

} // namespace bsr

#endif // BSR_RUNTIME_SELECT_H

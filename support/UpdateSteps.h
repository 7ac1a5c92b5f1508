// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The steps of an update of one pattern, for a thread block of a GPU
// (ThreadBlock.h) and for a thread of the host (runtime/pattern/OneThread.h)
// alike, so that both choose the same blocks and make the same views. A step is
// called by all threads of a team, which has
//
//   Size                    a number of items
//   row                     the UpdateRow of the pattern
//   words(place), ...       the memory at a place of it
//   wait(), waitForWarp()   all threads see what all, or those of a warp, have
//                           written
//   forEachItem(n, f)       f(i) for each item, side by side
//   forEachLane(n, f)       f(i, isIn) for whole warps; i is an item even where
//                           isIn is false
//   forEachBlock(f)         f(k, r) for each block k of the row view, in row r
//   scan<N>(n, look, take)  whole warps in the order of items: Counts of
//                           what `look` finds in the warp's items become those
//                           of all items in front, which `take` gets, and
//                           counts again; returns the counts of all items
//   vote, size, inFront     of a predicate: its lanes; how many; in front
//   sum, sumInFront         of a number, over the lanes of a warp
//   search(c, list, n, f)   how many of the n numbers come first for which
//                           f(number, place) holds; calls with one cursor c ask
//                           for rising results
//   put(list, p, v, isPut)  writes v where isPut holds; what lies at p is
//                           unspecified otherwise, until p is put
//   setFlags(list, i, is)   flag i of a list, of whole warps
//   isSet(list, i)          whether it is
//   ifFirst(f)              f() by one thread
//   Columns                 which blocks of a column come before another
//
// and, to select keys, countDigit and its kin.

#ifndef BSR_SUPPORT_UPDATESTEPS_H
#define BSR_SUPPORT_UPDATESTEPS_H

#include "Element.h"
#include "UpdateRow.h"

namespace sparse_opt {

/// Numbers of items of several kinds.
template <int N, typename Size>
struct Counts {
  Size of[N];
  void add(const Counts &more) {
    for (int i = 0; i < N; ++i)
      of[i] += more.of[i];
  }
};

/// An unsigned number that orders as `norm`, which is not negative.
inline uint64_t keyOf(double norm) { return bitCast<uint64_t>(norm); }

/// An unsigned number that orders as `score`, equal for zeros of both signs; 0,
/// below all numbers, for the NaN of which every bit is set.
inline uint32_t keyOf(float score) {
  const uint32_t sign = uint32_t(1) << 31;
  uint32_t bits = bitCast<uint32_t>(score);
  bits = bits == sign ? 0 : bits;
  return bits ^ (-(bits >> 31) | sign);
}

/// The score of a block that may not be chosen.
inline float barredScore() { return bitCast<float>(~uint32_t(0)); }

/// A key, and how many others are lower.
template <typename Key, typename Size>
struct Selected {
  Key key;
  Size below;
};

/// Selects the key of rank `rank` (from 0, rising) of those that `keyAt` gives
/// `items` items: exactly and in linear time, by radix selection.
template <typename Team, typename Size, typename KeyAt>
auto selectKey(Team &team, Size items, Size rank, KeyAt keyAt) {
  using Key = decltype(keyAt(items));
  constexpr Key digits = (Key(1) << Team::digitBits) - 1;
  Key prefix = 0, mask = 0;
  Size below = 0;
  for (int shift = 8 * sizeof(Key); shift > 0;) {
    // The last digit may overlap the one before it.
    shift = shift > Team::digitBits ? shift - Team::digitBits : 0;
    team.clearDigits();
    team.forEachLane(items, [=, &team](Size i, bool isIn) {
      Key key = keyAt(i);
      team.countDigit(uint32_t(key >> shift & digits),
                      isIn & ((key & mask) == prefix));
    });
    auto found = team.findDigit(rank - below);
    below += found.below;
    prefix |= Key(found.digit) << shift;
    mask |= digits << shift;
    if constexpr (Team::holdsKeys)
      if (team.canHold(found.digit))
        return team.selectHeld(items, rank, keyAt,
                               Selected<Key, Size>{prefix, below}, mask);
  }
  return Selected<Key, Size>{prefix, below};
}

/// Takes the `count` items, at least one, of the lowest keys; of equal keys the
/// first. Calls `take(i, isIn, isTaken, place)` for each, of whole warps, where
/// `place` items in front are taken.
template <typename Team, typename Size, typename KeyAt, typename Take>
void takeLowest(Team &team, Size items, Size count, KeyAt keyAt, Take take) {
  auto last = selectKey(team, items, Size(count - 1), keyAt);
  Size ties = count - last.below;
  team.template scan<2>(
      items,
      [=, &team](Size i, bool isIn) {
        auto key = keyAt(i);
        return Counts<2, Size>{team.size(team.vote(isIn & (key < last.key))),
                               team.size(team.vote(isIn & (key == last.key)))};
      },
      [=, &team](Size i, bool isIn, const Counts<2, Size> &before) {
        auto key = keyAt(i);
        bool isLow = isIn & (key < last.key), isTie = isIn & (key == last.key);
        auto low = team.vote(isLow), tied = team.vote(isTie);
        Size tiesBefore = before.of[1] + team.inFront(tied);
        Size taken = tiesBefore < ties ? tiesBefore : ties;
        take(i, isIn, bool(isLow | (isTie & (tiesBefore < ties))),
             Size(before.of[0] + team.inFront(low) + taken));
        return Counts<2, Size>{team.size(low), team.size(tied)};
      });
}

/// Calls `take` in the same way for items of which `isTaken(i)` says whether
/// they are. Returns how many.
template <typename Team, typename Size, typename IsTaken, typename Take>
Size takeThose(Team &team, Size items, IsTaken isTaken, Take take) {
  return team
      .template scan<1>(
          items,
          [=, &team](Size i, bool isIn) {
            return Counts<1, Size>{team.size(team.vote(isIn & isTaken(i)))};
          },
          [=, &team](Size i, bool isIn, const Counts<1, Size> &before) {
            bool isOne = isIn & isTaken(i);
            auto lanes = team.vote(isOne);
            take(i, isIn, isOne, Size(before.of[0] + team.inFront(lanes)));
            return Counts<1, Size>{team.size(lanes)};
          })
      .of[0];
}

/// Chooses the `count` blocks of the lowest norm: `flags` of `norms`.
template <typename Team>
void choosePruned(Team &team) {
  using Size = typename Team::Size;
  auto norms = team.doubles(team.row->norms);
  auto flags = team.flags(team.row->flags);
  takeLowest(
      team, Size(team.row->blocks), Size(team.row->count),
      [=](Size k) { return keyOf(norms[k]); },
      [=, &team](Size k, bool, bool isTaken, Size) {
        team.setFlags(flags, k, isTaken);
      });
}

/// Lists the numbers of the blocks of the row view: `stored`.
template <typename Team>
void listStored(Team &team) {
  auto colIdx = team.words(team.row->colIdx);
  auto stored = team.numbers(team.row->stored);
  uint64_t cols = team.row->cols;
  team.forEachBlock([=](auto k, auto r) { stored[k] = r * cols + colIdx[k]; });
}

/// Makes ranks, which rise, among the blocks that are not in `barred` their
/// numbers: as many are barred in front as have a number that is not above the
/// rank by more than those before them.
template <typename Team, typename Barred, typename Ranks, typename Size>
void numberRanks(Team &team, Barred barred, Size numBarred, Ranks ranks,
                 Size count) {
  auto cursor = team.cursor();
  team.forEachItem(count, [=, &team, &cursor](Size i) {
    uint64_t rank = ranks[i];
    ranks[i] = rank + team.search(cursor, barred, numBarred,
                                  [=](uint64_t number, Size place) {
                                    return number - place <= rank;
                                  });
  });
}

/// Chooses `count` blocks by their ranks among all that may be stored next:
/// `chosen` of the ranks there.
template <typename Team>
void regrowByRank(Team &team) {
  using Size = typename Team::Size;
  Size blocks = team.row->blocks, count = team.row->count;
  auto stored = team.numbers(team.row->stored);
  auto chosen = team.numbers(team.row->chosen);
  if (!team.row->returns)
    return numberRanks(team, stored, blocks, chosen, count);
  auto kept = team.numbers(team.row->kept);
  auto flags = team.flags(team.row->flags);
  takeThose(
      team, blocks, [=, &team](Size k) { return !team.isSet(flags, k); },
      [=, &team](Size k, bool, bool isKept, Size place) {
        team.put(kept, place, stored[k], isKept);
      });
  numberRanks(team, kept, Size(blocks - count), chosen, count);
}

/// Chooses the `count` blocks of the highest scores that may be stored next:
/// `chosen`. Scores of others are lost.
template <typename Team>
void regrowByScore(Team &team) {
  using Size = typename Team::Size;
  Size rows = team.row->rows, blocks = team.row->blocks;
  auto stored = team.numbers(team.row->stored);
  auto chosen = team.numbers(team.row->chosen);
  auto scores = team.floats(team.row->scores);
  auto flags = team.flags(team.row->flags);
  bool returns = team.row->returns;
  team.forEachItem(blocks, [=, &team](Size k) {
    if (!(returns && team.isSet(flags, k)))
      scores[stored[k]] = barredScore();
  });
  team.wait();
  takeLowest(
      team, Size(rows * team.row->cols), Size(team.row->count),
      [=](Size block) { return ~keyOf(scores[block]); },
      [=, &team](Size block, bool, bool isTaken, Size place) {
        team.put(chosen, place, uint64_t(block), isTaken);
      });
}

/// Blocks that are pruned and chosen at once stay as they are: their flags
/// become 0. `fresh` becomes the others that are chosen; returns how many.
template <typename Team>
auto cancelReturned(Team &team) {
  using Size = typename Team::Size;
  Size blocks = team.row->blocks, count = team.row->count;
  auto stored = team.numbers(team.row->stored);
  auto chosen = team.numbers(team.row->chosen);
  auto fresh = team.numbers(team.row->fresh);
  auto flags = team.flags(team.row->flags);
  // Whether one of the `size` numbers at `list`, which rise, is `number`.
  auto isAmong = [&team](auto &cursor, auto list, Size size, uint64_t number) {
    Size place = team.search(cursor, list, size, [=](uint64_t other, Size) {
      return other < number;
    });
    return (place < size) & (list[place < size ? place : size - 1] == number);
  };
  auto cursor = team.cursor();
  team.forEachLane(blocks, [=, &team, &cursor](Size k, bool isIn) {
    bool isReturned = isAmong(cursor, chosen, count, stored[k]);
    bool isPruned = isIn & team.isSet(flags, k) & !isReturned;
    team.waitForWarp();
    team.setFlags(flags, k, isPruned);
  });
  auto next = team.cursor();
  return takeThose(
      team, count,
      [=, &next](Size i) { return !isAmong(next, stored, blocks, chosen[i]); },
      [=, &team](Size i, bool, bool isFresh, Size place) {
        team.put(fresh, place, chosen[i], isFresh);
      });
}

/// Parts what is stored by `flags`: `pruned` and the slots that become `freed`,
/// `kept` and `keptSlots`. Returns how many are pruned.
template <typename Team>
auto splitStored(Team &team) {
  using Size = typename Team::Size;
  auto stored = team.numbers(team.row->stored);
  auto slot = team.words(team.row->slot);
  auto flags = team.flags(team.row->flags);
  auto kept = team.numbers(team.row->kept);
  auto keptSlots = team.words(team.row->keptSlots);
  auto pruned = team.words(team.row->pruned);
  auto freed = team.words(team.row->freed);
  return takeThose(
      team, Size(team.row->blocks),
      [=, &team](Size k) { return team.isSet(flags, k); },
      [=, &team](Size k, bool isIn, bool isPruned, Size place) {
        uint32_t own = slot[k];
        bool isKept = isIn & !isPruned;
        team.put(pruned, place, uint32_t(k), isPruned);
        team.put(freed, place, own, isPruned);
        team.put(kept, k - place, stored[k], isKept);
        team.put(keptSlots, k - place, own, isKept);
      });
}

/// Makes `stored` and `slot` those of the kept and the fresh blocks, which take
/// the first freed slots in their order.
template <typename Team, typename Size>
void mergeStored(Team &team, Size numKept, Size numFresh) {
  auto stored = team.numbers(team.row->stored);
  auto slot = team.words(team.row->slot);
  auto place = [=, &team](auto numbers, auto slots, Size size, auto others,
                          Size numOthers) {
    auto cursor = team.cursor();
    team.forEachItem(size, [=, &team, &cursor](Size i) {
      uint64_t number = numbers[i];
      Size at =
          i + team.search(cursor, others, numOthers,
                          [=](uint64_t other, Size) { return other < number; });
      stored[at] = number;
      slot[at] = slots[i];
    });
  };
  auto kept = team.numbers(team.row->kept);
  auto fresh = team.numbers(team.row->fresh);
  place(kept, team.words(team.row->keptSlots), numKept, fresh, numFresh);
  place(fresh, team.words(team.row->freed), numFresh, kept, numKept);
  team.wait();
}

/// Makes the column view of `blocks` blocks of the row view, whose columns
/// `columnOf(k, r)` gives.
template <typename Team, typename Size, typename ColumnOf>
void makeColumns(Team &team, Size blocks, ColumnOf columnOf) {
  auto colIdx = team.words(team.row->colIdx);
  auto slot = team.words(team.row->slot);
  auto colPtr = team.words(team.row->colPtr);
  auto rowIdx = team.words(team.row->rowIdx);
  auto slotT = team.words(team.row->slotT);
  Size cols = team.row->cols;
  typename Team::Columns columns(team);
  team.forEachBlock(
      [=](auto k, auto r) { columns.add(uint32_t(r), columnOf(k, r)); });
  team.wait();
  team.template scan<1>(
      cols,
      [=, &team](Size c, bool isIn) {
        uint32_t size = columns.count(c, isIn);
        if (isIn)
          colPtr[c] = size;
        return Counts<1, Size>{team.sum(isIn ? size : 0)};
      },
      [=, &team](Size c, bool isIn, const Counts<1, Size> &before) {
        uint32_t size = isIn ? colPtr[c] : 0;
        auto first = uint32_t(before.of[0] + team.sumInFront(size));
        if (isIn)
          colPtr[c] = first;
        return Counts<1, Size>{team.sum(size)};
      });
  team.ifFirst([=] { colPtr[cols] = uint32_t(blocks); });
  team.forEachBlock([=](auto k, auto r) {
    auto place = columns.place(uint32_t(r), colIdx[k]);
    rowIdx[place] = uint32_t(r);
    slotT[place] = slot[k];
  });
  columns.finish();
}

/// Makes the views of the `blocks` blocks that `stored` numbers; their slots
/// are in the row view already.
template <typename Team, typename Size>
void makeViews(Team &team, Size blocks) {
  auto stored = team.numbers(team.row->stored);
  auto rowPtr = team.words(team.row->rowPtr);
  auto colIdx = team.words(team.row->colIdx);
  uint64_t cols = team.row->cols;
  auto cursor = team.cursor();
  team.forEachItem(Size(Size(team.row->rows) + 1), [=, &team, &cursor](Size r) {
    uint64_t first = r * cols;
    rowPtr[r] = uint32_t(
        team.search(cursor, stored, blocks,
                    [=](uint64_t number, Size) { return number < first; }));
  });
  team.wait();
  makeColumns(team, blocks, [=](auto k, auto r) {
    auto column = uint32_t(stored[k] - r * cols);
    colIdx[k] = column;
    return column;
  });
}

/// Regrows blocks in the slots of those that `flags` has pruned, and makes the
/// views of what is stored then.
template <typename Team>
void changePattern(Team &team) {
  using Size = typename Team::Size;
  Size blocks = team.row->blocks, count = team.row->count, numFresh = 0;
  bool returns = team.row->returns;
  Regrowth regrowth = team.row->regrowth;
  listStored(team);
  team.wait();
  if (regrowth == Regrowth::Ranks)
    regrowByRank(team);
  if (regrowth == Regrowth::Scores)
    regrowByScore(team);
  team.wait();
  if (regrowth != Regrowth::None)
    numFresh = returns ? cancelReturned(team) : count;
  Size found = splitStored(team);
  // Without returns all that are chosen are pruned, which needs no data.
  Size numPruned = returns ? found : count;
  auto result = team.result();
  team.ifFirst([=] {
    result->numPruned = numPruned;
    result->numRegrown = numFresh;
  });
  mergeStored(team, Size(blocks - numPruned), numFresh);
  makeViews(team, Size(blocks - numPruned + numFresh));
}

/// A norm is a sum of what `magnitude` makes of elements, in which `add` takes
/// the next one.
struct Sum {
  static double magnitude(double value) { return __builtin_fabs(value); }
  static double add(double sum, double next) { return sum + next; }
};
struct SumOfSquares {
  static double magnitude(double value) { return value * value; }
  static double add(double sum, double next) { return sum + next; }
};
struct Largest {
  static double magnitude(double value) { return __builtin_fabs(value); }
  // NaN, once there, stays.
  static double add(double most, double next) {
    bool isNext = (next > most) | (next != next);
    return isNext ? next : most;
  }
};

/// The norm of a block of `size` elements, of which `parts` has `normParts`
/// partial sums, or one of them: `add(size, f)` returns them, each f(sum,
/// element) of its elements in their order; `fold(sums, d, f)` makes them f of
/// themselves and of those d behind; `first(sums)` is the first, and `only` the
/// element of a block of one.
template <typename Norm, typename Parts, typename Size>
double normOf(Parts parts, Size size) {
  if (size == 1) // all norms order alike
    return __builtin_fabs(toDouble(parts.only()));
  auto sums = parts.add(size, [](double sum, auto element) {
    return Norm::add(sum, Norm::magnitude(toDouble(element)));
  });
  auto fold = [](double sum, double next) { return Norm::add(sum, next); };
  parts.fold(sums, 1, fold);
  parts.fold(sums, 2, fold);
  parts.fold(sums, 4, fold);
  return parts.first(sums);
}

} // namespace sparse_opt

#endif // BSR_SUPPORT_UPDATESTEPS_H

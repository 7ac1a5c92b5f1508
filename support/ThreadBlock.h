// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread block of a GPU, as a team that updates a pattern
// (UpdateSteps.h). No loop but those over the blocks of a row ends by data, so
// that the compiler can tell how long kernels take.

#ifndef BSR_SUPPORT_THREADBLOCK_H
#define BSR_SUPPORT_THREADBLOCK_H

#include "UpdateSteps.h"

namespace sparse_opt {

/// Global memory.
template <typename T>
using Global = T __attribute__((address_space(1))) *;

template <typename T>
Global<T> atPlace(uint64_t place) {
  return (Global<T>)place;
}

constexpr unsigned allLanes = ~0u;

/// Shared memory of a thread block: of each warp what it has found of a
/// list, how many keys have each digit, and the digit that was looked for.
static __attribute__((shared)) uint32_t partsOfWarps[2][32];
static __attribute__((shared, aligned(16))) uint32_t digitCounts[256];
static __attribute__((shared)) uint32_t foundDigit[2];

class ThreadBlock {
public:
  using Size = uint32_t;
  using Votes = uint32_t;

  ThreadBlock(uint64_t base, uint64_t row)
      : row(atPlace<const UpdateRow>(row)), base(base),
        thread(__nvvm_read_ptx_sreg_tid_x()), lane(thread % 32),
        warp(thread / 32), lower((1u << lane) - 1), rounds(this->row->rounds) {}

  auto words(uint64_t place) const { return atPlace<uint32_t>(base + place); }
  auto numbers(uint64_t place) const { return atPlace<uint64_t>(base + place); }
  auto floats(uint64_t place) const { return atPlace<float>(base + place); }
  auto doubles(uint64_t place) const { return atPlace<double>(base + place); }
  auto flags(uint64_t place) const { return words(place); }
  auto result() const { return atPlace<UpdateResult>(base + row->result); }

  void wait() const { __nvvm_bar_sync(0); }
  void waitForWarp() const { __nvvm_bar_warp_sync(allLanes); }

  template <typename Body>
  void forEachItem(Size count, Body body) const {
    for (Size i = thread; i < count; i += updateThreads)
      body(i);
  }
  template <typename Body>
  void forEachLane(Size count, Body body) const {
    for (Size first = warp * 32; first < count; first += updateThreads)
      body(min(first + lane, count - 1), first + lane < count);
  }
  template <typename Body>
  void forEachBlock(Body body) const {
    auto rowPtr = words(row->rowPtr);
    for (Size r = warp, rows = row->rows; r < rows; r += 32) {
      for (Size k = rowPtr[r] + lane, end = rowPtr[r + 1]; k < end; k += 32)
        body(k, r);
      waitForWarp(); // no lane goes ahead to rows where others have blocks
    }
  }

  // Each warp has a run of items, a multiple of 32.
  template <int N, typename Look, typename Take>
  Counts<N, Size> scan(Size count, Look look, Take take) const {
    Size part = (count + (updateThreads - 1)) / updateThreads * 32;
    Size from = min(warp * part, count), to = min(from + part, count);
    auto forEach32 = [&](auto body) {
      for (Size first = from; first < to; first += 32)
        body(min(first + lane, to - 1), first + lane < to);
    };
    Counts<N, Size> sums = {}, all;
    forEach32([&](Size i, bool isIn) { sums.add(look(i, isIn)); });
#pragma unroll
    for (int n = 0; n < N; ++n)
      if (lane == 0)
        partsOfWarps[n][warp] = sums.of[n];
    wait();
#pragma unroll
    for (int n = 0; n < N; ++n) {
      Size own = partsOfWarps[n][lane];
      all.of[n] = sum(own);
      sums.of[n] = sum(lane < warp ? own : 0);
    }
    forEach32([&](Size i, bool isIn) { sums.add(take(i, isIn, sums)); });
    wait();
    return all;
  }

  Votes vote(bool is) const { return __nvvm_vote_ballot_sync(allLanes, is); }
  uint32_t size(Votes votes) const { return __builtin_popcount(votes); }
  uint32_t inFront(Votes votes) const { return size(votes & lower); }
  uint32_t sum(uint32_t number) const {
    return __nvvm_redux_sync_add(number, allLanes);
  }
  uint32_t sumInFront(uint32_t number) const {
    uint32_t until = number;
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
      uint32_t other = __nvvm_shfl_sync_up_i32(allLanes, until, distance, 0);
      until += lane < distance ? 0 : other;
    }
    return until - number;
  }

  struct Cursor {};
  Cursor cursor() const { return {}; }
  // By halves: as many rounds as any list of stored blocks needs.
  template <typename IsBefore>
  Size search(Cursor, Global<const uint64_t> list, Size count,
              IsBefore isBefore) const {
    Size low = 0;
    if (count == 0)
      return low;
    for (Size step = (1u << rounds) / 2; step; step /= 2) {
      Size next = low + step, end = min(next, count);
      bool isOne = (next <= count) & isBefore(*(list + end - 1), end - 1);
      low = isOne ? next : low;
    }
    return low;
  }

  template <typename T>
  void put(Global<T> list, Size place, T value, bool isPut) const {
    if (isPut)
      list[place] = value;
  }
  // A bit each.
  void setFlags(Global<uint32_t> list, Size i, bool is) const {
    Votes votes = vote(is);
    if (lane == 0)
      list[i / 32] = votes;
  }
  bool isSet(Global<const uint32_t> list, Size i) const {
    return list[i / 32] >> (i % 32) & 1;
  }
  void markBit(Global<uint32_t> list, uint64_t i) const {
    __scoped_atomic_fetch_or(&list[i / 32], 1u << (i % 32), __ATOMIC_RELAXED,
                             __MEMORY_SCOPE_DEVICE);
  }
  template <typename Body>
  void ifFirst(Body body) const {
    if (thread == 0)
      body();
  }
  void zero(Global<uint32_t> list, Size count) const {
    forEachItem(count, [=](Size i) { list[i] = 0; });
  }

  // Keys are counted by 8 bits at a time.
  static constexpr int digitBits = 8;
  static constexpr bool holdsKeys = false;
  void clearDigits() const {
    if (thread < numDigits)
      digitCounts[thread] = 0;
    wait();
  }
  // Of lanes with one digit the first counts all.
  void countDigit(uint32_t digit, bool isIn) const {
    uint32_t own = isIn ? digit : numDigits;
    Votes peers = __nvvm_match_any_sync_i32(allLanes, own);
    if (isIn & !(peers & lower))
      __scoped_atomic_fetch_add(&digitCounts[own], size(peers),
                                __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  }
  struct Digit {
    uint32_t digit;
    Size below;
  };
  // A lane of the first warp has eight digits.
  Digit findDigit(Size rank) const {
    wait();
    if (warp == 0) {
      uint32_t counts[8], sum = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        sum += counts[i] = digitCounts[lane * 8 + i];
      uint32_t first = sumInFront(sum), digit = lane * 8;
      if ((first <= rank) & (rank < first + sum)) {
        bool isBelow = true;
#pragma unroll
        for (int i = 0; i < 7; ++i) {
          isBelow &= first + counts[i] <= rank;
          first += isBelow ? counts[i] : 0;
          digit += isBelow;
        }
        foundDigit[0] = digit;
        foundDigit[1] = first;
      }
    }
    wait();
    return {foundDigit[0], foundDigit[1]};
  }

  /// Bits and counts of 32 rows of each column, and which rows these are.
  class Columns {
  public:
    explicit Columns(const ThreadBlock &team)
        : team(team), cols(team.row->cols), groups((team.row->rows + 31) / 32),
          marks(team.words(team.row->marks)),
          before(team.words(team.row->before)),
          colPtr(team.words(team.row->colPtr)) {
      team.zero(marks, groups * cols);
      team.wait();
    }
    void add(uint32_t r, uint32_t column) const {
      __scoped_atomic_fetch_or(&marks[r / 32 * cols + column], 1u << (r % 32),
                               __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
    }
    /// The blocks of a column; of 32 rows each, how many are in front.
    uint32_t count(uint32_t column, bool isIn) const {
      uint32_t all = 0;
      for (uint32_t group = 0, i = column; group < groups; ++group, i += cols) {
        uint32_t own = team.size(marks[i]);
        if (isIn)
          before[i] = all;
        all += own;
      }
      return all;
    }
    uint32_t place(uint32_t r, uint32_t column) const {
      uint32_t i = r / 32 * cols + column;
      return colPtr[column] + before[i] +
             team.size(marks[i] & ((1u << (r % 32)) - 1));
    }
    void finish() const {}

  private:
    const ThreadBlock &team;
    uint32_t cols, groups;
    Global<uint32_t> marks, before, colPtr;
  };

  const Global<const UpdateRow> row;

private:
  static constexpr uint32_t numDigits = 1 << digitBits;
  static Size min(Size a, Size b) { return a < b ? a : b; }

  const uint64_t base;
  const uint32_t thread, lane, warp, lower, rounds;
};

} // namespace sparse_opt

#endif // BSR_SUPPORT_THREADBLOCK_H

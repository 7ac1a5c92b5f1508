// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Means over the processes of a run.

#include "Communicator.h"
#include "base/Element.h"
#include "base/Status.h"
#include <algorithm>

using namespace sparse_opt;

/// Writes the mean of `size` arrays of `count` elements, which lie one after
/// the other at `parts`, to `mean`: sums of `Sum`, in order.
template <typename Element, typename Sum>
static void takeMean(const void *parts, int64_t count, int32_t size,
                     bsr_type type, void *mean) {
  auto *all = static_cast<const Element *>(parts);
  // Some at a time, rank by rank: vectors.
  constexpr int64_t most = 1024;
  Sum sums[most];
  for (int64_t at = 0; at < count; at += most) {
    int64_t number = std::min(most, count - at);
    for (int64_t i = 0; i < number; ++i)
      sums[i] = Sum(toDouble(all[at + i]));
    for (int32_t rank = 1; rank < size; ++rank)
      for (int64_t i = 0; i < number; ++i)
        sums[i] += Sum(toDouble(all[rank * count + at + i]));
    for (int64_t i = 0; i < number; ++i) {
      Sum sum = sums[i] / Sum(size);
      if constexpr (std::is_same_v<Element, Sum>)
        static_cast<Element *>(mean)[at + i] = sum;
      else
        storeElement(type, mean, at + i, double(sum));
    }
  }
}

static void takeMean(const void *parts, int64_t count, int32_t size,
                     bsr_type type, void *mean) {
  switch (type) {
  case BSR_F16:
    return takeMean<Half, float>(parts, count, size, type, mean);
  case BSR_BF16:
    return takeMean<BFloat, float>(parts, count, size, type, mean);
  case BSR_F32:
    return takeMean<float, float>(parts, count, size, type, mean);
  case BSR_F64:
    return takeMean<double, double>(parts, count, size, type, mean);
  default:
    fail(BSR_INVALID_ARGUMENT,
         "expected to reduce elements of f16, bf16, f32 or f64, but got ",
         bsr_type_name(type));
  }
}

void Communicator::reduceSegment(char *data, int64_t count, bsr_type type) {
  auto number = int32_t(group.ranks.size());
  int64_t width = bsr_type_bytes(type), chunk = (count + number - 1) / number;
  std::vector<Exchange::Span> spans;
  for (int64_t from = 0; from < chunk * number; from += chunk) {
    int64_t begin = std::min(from, count), end = std::min(from + chunk, count);
    spans.push_back({begin * width, (end - begin) * width});
  }
  Exchange::Span own = spans[group.own];
  size_t all = size_t(own.bytes * number);
  if (received.size() < all)
    received.resize(all);
  exchange->allToAllSpans(data, spans, received.data(), group);
  takeMean(received.data(), own.bytes / width, number, type, data + own.begin);
  exchange->allGatherSpans(data, spans, group);
  std::lock_guard<std::mutex> lock(mutex);
  counted.bytes_sent += count * width - own.bytes + (number - 1) * own.bytes;
}

void Communicator::reduceParts(const std::vector<bsr_part> &parts,
                               bsr_type type) {
  int64_t width = bsr_type_bytes(type), number = int64_t(group.ranks.size());
  int64_t most = std::max<int64_t>(segmentBytes / width, 1);
  int64_t large = std::min(most, largePartBytes / width);
  for (auto part = parts.begin(); part != parts.end();) {
    if (part->count >= large) {
      // Where it lies.
      for (int64_t at = 0; at < part->count; at += most)
        reduceSegment(static_cast<char *>(part->data) + at * width,
                      std::min(most, part->count - at), type);
      ++part;
      continue;
    }
    // Small ones together, in a copy, of which each rank has a chunk: all hear
    // of all.
    auto first = part;
    int64_t count = 0;
    while (part != parts.end() && part->count < large &&
           count + part->count <= most)
      count += part++->count;
    int64_t sent = (count + number - 1) / number * number;
    if (together.size() < size_t(sent * width))
      together.resize(size_t(sent * width));
    char *end = together.data();
    for (auto from = first; from != part; ++from)
      end = std::copy_n(static_cast<const char *>(from->data),
                        from->count * width, end);
    std::fill(end, together.data() + sent * width, 0);
    reduceSegment(together.data(), sent, type);
    const char *next = together.data();
    for (auto to = first; to != part; next += to++->count * width)
      std::copy_n(next, to->count * width, static_cast<char *>(to->data));
  }
}

int64_t Communicator::start(const bsr_part *parts, int64_t numParts,
                            bsr_type type) {
  auto asked = Clock::now();
  std::vector<bsr_part> all;
  int64_t bytes = 0;
  for (int64_t i = 0; i < numParts; ++i) {
    if (parts[i].count)
      all.push_back(parts[i]);
    bytes += parts[i].count * bsr_type_bytes(type);
  }
  {
    std::lock_guard<std::mutex> lock(mutex);
    ++counted.buckets;
    counted.reductions += numParts;
    counted.bytes_reduced += bytes;
  }
  if (!exchange || group.ranks.size() == 1)
    return 0;
  return post([=, all = std::move(all)] {
    auto began = Clock::now();
    reduceParts(all, type);
    auto ended = Clock::now();
    std::lock_guard<std::mutex> lock(mutex);
    counted.nanoseconds += nanoseconds(ended) - nanoseconds(began);
    if (isTraced)
      kept.push_back({nanoseconds(asked), nanoseconds(began),
                      nanoseconds(ended), numParts, bytes});
  });
}

void Communicator::reduce(void *data, int64_t count, bsr_type type) {
  bsr_part part = {data, count};
  wait(start(&part, 1, type));
}

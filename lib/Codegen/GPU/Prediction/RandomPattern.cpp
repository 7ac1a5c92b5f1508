// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes views of random patterns.

#include "RandomPattern.h"
#include <cmath>
#include <random>

using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// The smallest k such that of `count` blocks, each there with probability
/// `density`, at most k are there with probability `part` or more.
static int64_t getQuantile(int64_t count, double density, double part) {
  if (density >= 1)
    return count;
  double sum = 0;
  for (int64_t k = 0; k != count; ++k) {
    double logarithm = std::lgamma(count + 1) - std::lgamma(k + 1) -
                       std::lgamma(count - k + 1) + k * std::log(density) +
                       (count - k) * std::log1p(-density);
    sum += std::exp(logarithm);
    if (sum >= part)
      return k;
  }
  return count;
}

ViewArrays mlir::bsr::gpu::makeRandomView(int64_t lines, int64_t extent,
                                          int64_t slots) {
  constexpr double ratio = 0.6180339887498949;
  auto part = [](double x) { return x - std::floor(x); };
  double density = double(slots) / (double(lines) * extent);
  std::vector<int64_t> counts(lines);
  int64_t total = 0;
  for (int64_t line = 0; line != lines; ++line)
    total += counts[line] =
        getQuantile(extent, density, part(.5 + line * ratio));
  // Few are missing or too many.
  for (int64_t i = 0; total != slots; ++i) {
    int64_t &count = counts[int64_t(part(i * ratio) * lines)];
    if (total < slots && count != extent)
      ++count, ++total;
    else if (total > slots && count != 0)
      --count, --total;
  }
  ViewArrays arrays;
  auto &[starts, others, slotNumbers] = arrays;
  starts.push_back(0);
  std::minstd_rand random;
  for (int64_t count : counts) {
    // Each position is taken as likely as what is left of blocks to what is
    // left of positions.
    for (int64_t position = 0; count != 0; ++position)
      if (int64_t(random() % (extent - position)) < count) {
        others.push_back(position);
        slotNumbers.push_back(slotNumbers.size());
        --count;
      }
    starts.push_back(others.size());
  }
  return arrays;
}

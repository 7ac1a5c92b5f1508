// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "WayTimes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>

using namespace llvm;
using namespace mlir::bsr;

/// Of times, what is worth another kernel.
static constexpr double leastGain = 0.02;
/// Of the own times of a run, how much they may differ.
static constexpr double mostNoise = 0.1;

static double getMedian(std::vector<double> numbers) {
  auto middle = numbers.begin() + numbers.size() / 2;
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

void WayTimes::add(ArrayRef<int64_t> nanoseconds) {
  auto [least, most] = std::minmax(nanoseconds.front(), nanoseconds.back());
  if (double(most) <= (1 + mostNoise) * double(least))
    runs.push_back(nanoseconds.vec());
}

double WayTimes::getOwnTime(ArrayRef<int64_t> run) {
  return double(run.front() + run.back()) / 2;
}

double WayTimes::getOwnTime() const {
  std::vector<double> times;
  for (ArrayRef<int64_t> run : runs)
    times.push_back(getOwnTime(run));
  return getMedian(std::move(times));
}

std::vector<double> WayTimes::getRatios(size_t number) const {
  std::vector<double> ratios;
  for (ArrayRef<int64_t> run : runs)
    ratios.push_back(double(run[1 + number]) / getOwnTime(run));
  return ratios;
}

double WayTimes::getRatio(size_t number) const {
  return getMedian(getRatios(number));
}

bool WayTimes::isFaster(size_t number) const {
  if (runs.size() < fewestRuns)
    return false;
  // The same code took as much more or less at another time of the run.
  std::vector<double> drifts;
  for (ArrayRef<int64_t> run : runs)
    drifts.push_back(double(run.back()) / double(run.front()));
  double noise = std::abs(getMedian(std::move(drifts)) - 1);
  std::vector<double> ratios = getRatios(number);
  auto won = count_if(ratios, [](double ratio) { return ratio < 1; });
  return 4 * size_t(won) >= 3 * ratios.size() &&
         getMedian(std::move(ratios)) < 1 - std::max(leastGain, noise);
}

std::string mlir::bsr::describeDifference(StringRef name, ArrayRef<double> own,
                                          ArrayRef<double> other,
                                          double roundoff, double sumRoundoff) {
  // Sums of random numbers cancel: what they were made of is about as large as
  // the largest.
  constexpr double roundings = 1024;
  double largest = 0;
  for (double number : own)
    if (std::isfinite(number))
      largest = std::max(largest, std::abs(number));
  for (auto [i, a, b] : enumerate(own, other)) {
    if (a == b || (std::isnan(a) && std::isnan(b)))
      continue;
    double bound =
        2 * roundoff * std::abs(a) + roundings * sumRoundoff * largest;
    if (std::isfinite(a) && std::abs(a - b) <= bound)
      continue;
    std::string text;
    raw_string_ostream(text) << "expected all kernels for @" << name
                             << " to compute the same, but got "
                             << format("%.6g instead of %.6g at %zu", b, a, i);
    return text;
  }
  return "";
}

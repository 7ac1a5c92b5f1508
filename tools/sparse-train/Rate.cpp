// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes the learning rate.

#include "Rate.h"

#include <algorithm>
#include <cmath>

using namespace sparse_opt;
using namespace sparse_opt::train;

/// The share of the peak that step `step` has.
static double shareOfPeak(const Config &config, int64_t step) {
  if (step < config.rateWarmup)
    return double(step + 1) / config.rateWarmup;
  double t = double(step - config.rateWarmup) /
             std::max<int64_t>(1, config.steps - config.rateWarmup);
  if (config.rateDecay == "linear")
    return 1 - t;
  if (config.rateDecay == "cosine")
    return (1 + std::cos(M_PI * t)) / 2;
  return 1;
}

double train::learningRate(const Config &config, int64_t step,
                           double sparsity) {
  double rate = config.ratePeak * shareOfPeak(config, step);
  if (config.rateSparsityRule)
    rate *= std::exp(1.969 * sparsity * sparsity + 0.2905 * sparsity);
  return rate;
}

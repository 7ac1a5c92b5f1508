// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The learning rate.

#ifndef BSR_TOOLS_SPARSETRAIN_RATE_H
#define BSR_TOOLS_SPARSETRAIN_RATE_H

#include "Config.h"

namespace sparse_opt::train {

/// The learning rate of step `step`, counted from 0, of patterns that leave
/// `sparsity` of the elements of their matrices out. With w = rate.warmup and
/// n = steps it is rate.peak times
///
///     (step + 1) / w                 while step < w, and then, of
///                                    t = (step - w) / (n - w),
///     1 - t                          for rate.decay: linear
///     (1 + cos(pi t)) / 2            cosine
///     1                              constant
///
/// and with rate.sparsity_rule, for a rate.peak that is right for the dense
/// model, times exp(1.969 s^2 + 0.2905 s) at sparsity s (Dietrich et al.,
/// "Towards structured dynamic sparse pre-training of BERT", equation 3).
double learningRate(const Config &config, int64_t step, double sparsity);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_RATE_H
